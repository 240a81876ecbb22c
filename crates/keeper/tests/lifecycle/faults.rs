use crate::Trial;
pub(crate) const TRIALS: &[Trial] = &[];
