//! The host end of the agent's protocol.
