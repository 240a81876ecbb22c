//! One file for each kind of attack.

mod bombs;
mod copy;
mod crowd;
mod input;
mod isolation;
mod kill;
mod lifecycle;
mod names;
mod output;
mod reference;
mod state;

use cosm_attacks::Case;

pub(crate) fn all() -> Vec<Case> {
    [
        kill::CASES,
        lifecycle::CASES,
        output::CASES,
        input::CASES,
        bombs::CASES,
        crowd::CASES,
        names::CASES,
        state::CASES,
        copy::CASES,
        isolation::CASES,
        reference::CASES,
    ]
    .concat()
}

/// A case with a limit in seconds.
macro_rules! case {
    ($group:ident :: $name:ident, $limit:literal) => {
        cosm_attacks::Case {
            name: concat!(stringify!($group), "::", stringify!($name)),
            run: $name,
            limit: $limit,
        }
    };
}
pub(crate) use case;
