//! What a proof inside another machine says, a line for each check:
//!
//! ```text
//! PASS name
//! FAIL name: what was seen
//! SKIP name: why
//! NOTE something worth reading
//! END
//! ```
//!
//! Other lines are shown as they are. Without the last line, the proof did not come to its end.

use super::ProofError;

/// The lines, counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
    pub(super) complete: bool,
}

impl Verdict {
    pub(super) fn of(text: &str) -> Self {
        let mut verdict = Self::default();
        for line in text.lines() {
            match line.trim_end().split(' ').next() {
                Some("PASS") => verdict.passed += 1,
                Some("FAIL") => verdict.failed += 1,
                Some("SKIP") => verdict.skipped += 1,
                Some("END") => verdict.complete = true,
                _ => {}
            }
        }
        verdict
    }
}

/// Shows the lines and judges them. Returns whether the proof came to its end.
pub(super) fn report(what: &str, text: &str) -> Result<bool, ProofError> {
    for line in text.lines() {
        println!("{what}: {}", line.trim_end());
    }
    let Verdict {
        passed,
        failed,
        skipped,
        complete,
    } = Verdict::of(text);
    println!("{what}: {passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 {
        return Err(ProofError::Failed { passed, failed });
    }
    // A proof that checked nothing proves nothing.
    Ok(complete && passed > 0)
}

#[cfg(test)]
mod tests {
    use super::Verdict;

    #[test]
    fn lines_are_counted_by_their_first_word() {
        let text = "NOTE PASS\r\nPASS a\r\nPASSING\nFAIL b: PASS\nSKIP c: no\n";
        assert_eq!(
            Verdict::of(text),
            Verdict {
                passed: 1,
                failed: 1,
                skipped: 1,
                complete: false
            }
        );
        assert!(Verdict::of("PASS a\nEND\r\n").complete);
    }
}
