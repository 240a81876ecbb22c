//! The agent as bytes, built beside the program that carries it.
//!
//! The build script compiles `crates/agent/bin` for the same machine. It needs no target and no libc beyond what the
//! program around it needs. A packager who has built the agent already names it in `COSM_AGENT_PREBUILT`.

/// The agent: a static program that runs in any root file system.
pub static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cosm-agent"));

#[cfg(test)]
mod tests {
    use super::AGENT;

    fn word(at: usize) -> usize {
        usize::from(u16::from_le_bytes([AGENT[at], AGENT[at + 1]]))
    }

    fn long(at: usize) -> usize {
        u64::from_le_bytes(AGENT[at..at + 8].try_into().expect("eight bytes")) as usize
    }

    /// `e_phoff`, `e_phentsize`, `e_phnum` of a 64-bit ELF file, then the `p_type` of each program header.
    fn program_headers() -> Vec<u32> {
        let (start, size, count) = (long(32), word(54), word(56));
        (0..count)
            .map(|i| start + i * size)
            .map(|at| u32::from_le_bytes(AGENT[at..at + 4].try_into().expect("four bytes")))
            .collect()
    }

    #[test]
    fn it_is_a_static_program() {
        const EXECUTABLE: usize = 2;
        const DYNAMIC: u32 = 2;
        const INTERPRETER: u32 = 3;
        assert_eq!(&AGENT[..5], b"\x7fELF\x02");
        assert_eq!(
            word(16),
            EXECUTABLE,
            "loaded where it was linked, so it needs no relocation"
        );
        let headers = program_headers();
        assert!(
            !headers.contains(&INTERPRETER) && !headers.contains(&DYNAMIC),
            "{headers:?}"
        );
    }

    #[test]
    fn it_is_small() {
        assert!(AGENT.len() < 512 << 10, "{} bytes", AGENT.len());
    }

    #[test]
    fn it_carries_no_libc() {
        let has = |text: &[u8]| AGENT.windows(text.len()).any(|window| window == text);
        assert!(!has(b"GNU C Library") && !has(b"musl libc"));
    }
}
