//! What a user may ask of a sandbox, and the check that finds illegal combinations before anything starts.
