//! The agent as bytes, built beside the program that carries it.
