//! What is said of Dockerfiles that can't be followed.

use super::*;

#[test]
fn mistakes_say_where_they_are_and_what_to_do() {
    for (text, expected) in [
        (
            "",
            "there is no FROM: a Dockerfile starts with the image that it builds on, such as FROM debian:12",
        ),
        (
            "RUN a",
            "line 1: RUN comes before the first FROM, where only ARG can be",
        ),
        (
            "FROM a\n\nRNU b",
            "line 3: there is no instruction \"RNU\": did you mean RUN?",
        ),
        (
            "FROM a\nXYZZY b",
            "line 2: there is no instruction \"XYZZY\"",
        ),
        (
            "FROM a\nCOPY --form=b c d",
            "line 2: COPY has no flag \"--form\": did you mean --from?",
        ),
        (
            "FROM a\nCOPY --from=b --from=c d e",
            "line 2: COPY has --from twice: remove one",
        ),
        (
            "FROM a\nCOPY --from d e",
            "line 2: from can't be \"\": it is written --flag=value",
        ),
        (
            "FROM a\nCOPY a",
            "line 2: COPY needs one or more sources and a destination",
        ),
        (
            "FROM a\nCOPY $NO /",
            "line 2: COPY needs sources that are not empty: . is the whole folder",
        ),
        (
            "FROM a\nCOPY --chmod=u+x a b",
            "line 2: chmod can't be \"u+x\": it is permissions in octal digits, such as 0755",
        ),
        (
            "FROM a\nCOPY [a b",
            "line 2: \"[a\" is not a pattern: a [ has no ] after it that closes a set of characters",
        ),
        (
            "FROM a\nRUN [\"a\", 1]",
            "line 2: the JSON array of RUN can have nothing but texts in double quotes in it",
        ),
        ("FROM a\nRUN", "line 2: RUN needs a command"),
        ("FROM a\nENV A", "line 2: ENV needs NAME=value"),
        (
            "FROM a\nENV A=1 B",
            "line 2: \"B\" has no =: ENV takes NAME=value, with quotes around values with spaces",
        ),
        (
            "FROM a\nENV A=\0",
            "line 2: there is a NUL character, which no text for a program can have: remove it",
        ),
        (
            "FROM a\nCOPY <<\"A B\" /x\ny\nA B",
            "line 2: \"<<\"A\" can't be read",
        ),
        ("FROM a\nENV A=\"1", "line 2: \"\"1\" can't be read"),
        (
            "FROM a\nRUN <<X\nb",
            "line 2: the heredoc is not closed: write \"X\" on a line of its own after it",
        ),
        (
            "FROM a AS b\nFROM c AS B",
            "line 2: a stage named \"b\" is there already, at line 1: choose another name",
        ),
        (
            "FROM a AS 1",
            "line 1: the name of a stage can't be \"1\": it is a letter, then letters, digits, dots, dashes and underscores, and not scratch",
        ),
        (
            "FROM a b",
            "line 1: FROM needs an image, and perhaps AS and a name",
        ),
        (
            "FROM $A",
            "line 1: \"$A\" names no image: give its ARG a value",
        ),
        (
            "FROM --platform=a/b/c/d x",
            "line 1: \"a/b/c/d\" is not a platform: write an operating system and a processor, such as linux/arm64",
        ),
        (
            "FROM a\nCOPY --from=b c d\nFROM e AS b",
            "line 2: the stage \"b\" comes later: move it before this one",
        ),
        (
            "FROM a AS b\nCOPY --from=b c d",
            "line 2: the stage \"b\" can't take files from itself",
        ),
        (
            "FROM a\nCOPY --from=7 c d",
            "line 2: there is no stage \"7\"",
        ),
        (
            "FROM a\nCOPY --from=$B c d",
            "line 2: --from can't have variables in it: give the image a name with FROM .. AS name, and write the name here",
        ),
        (
            "FROM a\nADD https://x/y /",
            "line 2: ADD from somewhere else is not supported: download it in a RUN, where its checksum can be looked at, or put it into the folder that is built",
        ),
        (
            "FROM a\nONBUILD RUN b",
            "line 2: ONBUILD is not supported: write its instruction into the Dockerfiles that build on this image",
        ),
        (
            "FROM a\nRUN --mount=type=secret,id=b c",
            "line 2: RUN --mount=type=secret is not supported: put what the build needs into a stage that the image takes only files from",
        ),
        (
            "FROM a\nRUN --mount=type=ssh c",
            "line 2: RUN --mount=type=ssh is not supported: fetch what it is for before the build, into the folder that is built",
        ),
        (
            "FROM a\nRUN --mount=tpye=bind c",
            "line 2: RUN --mount has no field \"tpye\": did you mean type?",
        ),
        (
            "FROM a\nRUN --mount=type=cache c",
            "line 2: RUN --mount needs a target",
        ),
        (
            "FROM a\nRUN --security=insecure c",
            "line 2: RUN --security is not supported: a build never gets more rights than its sandbox has, so leave the flag out",
        ),
        (
            "FROM a\nRUN --network=x c",
            "line 2: network can't be \"x\": it is default, none or host",
        ),
        (
            "FROM a\nEXPOSE x",
            "line 2: a port can't be \"x\": it is a number or a range, perhaps with /tcp, /udp or /sctp",
        ),
        (
            "FROM a\nSTOPSIGNAL x",
            "line 2: a signal can't be \"x\": it is a name such as SIGINT or a number from 1 to 64",
        ),
        (
            "FROM a\nSHELL bash",
            "line 2: SHELL needs a JSON array, such as [\"/bin/bash\", \"-c\"]",
        ),
        (
            "FROM a\nHEALTHCHECK x",
            "line 2: HEALTHCHECK needs CMD and a command, or NONE",
        ),
        (
            "FROM a\nUSER $NO",
            "line 2: USER needs a user, and perhaps a colon and a group",
        ),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
    let kind = resolve_with("FROM a\nENV A=\"${B:?tell me}\"", &[]).expect_err("it is missing");
    let source = std::error::Error::source(&kind).expect("it says why");
    assert_eq!(source.to_string(), "B: tell me");
}
