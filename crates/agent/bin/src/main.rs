//! The agent as a program: static, without std, without libc.
#![no_std]
#![no_main]

cosm_sys_guest::program!(cosm_agent::main);
