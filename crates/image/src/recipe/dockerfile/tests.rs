use super::*;
use crate::config::{Healthcheck, RunConfig};
use crate::recipe::{
    Action, Base, CopyFiles, Origin, Recipe, Run, RunForm, RunMount, RunNetwork, Scope, Sharing,
    Source, Step,
};
use proptest::prelude::*;

mod examples;
mod mistakes;
mod scopes;

fn options(args: &[(&str, &str)]) -> Options {
    Options {
        build_args: args
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        target: None,
        platform: "linux/arm64".parse().expect("it is a platform"),
        build_platform: "linux/amd64".parse().expect("it is a platform"),
    }
}

fn recipe_with(text: &str, args: &[(&str, &str)]) -> Result<Recipe, DockerfileError> {
    Dockerfile::parse(text)?.recipe(&options(args))
}

fn resolve_with(text: &str, args: &[(&str, &str)]) -> Result<(Vec<Step>, Scope), DockerfileError> {
    let recipe = recipe_with(text, args)?;
    let mut ends: Vec<(Vec<Step>, Scope)> = Vec::new();
    for (index, stage) in recipe.stages().iter().enumerate() {
        let base = match stage.base {
            Base::Stage(base) => ends[base].1.clone(),
            Base::Image(_) => Scope::of(RunConfig {
                env: vec!["PATH=/usr/bin:/bin".to_owned()],
                cmd: vec!["sh".to_owned()],
                ..RunConfig::default()
            }),
            Base::Scratch => Scope::default(),
        };
        ends.push(recipe.resolve(index, &base)?);
    }
    Ok(ends.pop().expect("there is a stage"))
}

/// The last step of a stage of these lines.
fn last(lines: &str) -> Action {
    let text = format!("FROM base\n{lines}");
    let (mut steps, _) = resolve_with(&text, &[]).unwrap_or_else(|e| panic!("{lines}: {e}"));
    steps.pop().expect("there is a step").action
}

fn end(text: &str, args: &[(&str, &str)]) -> RunConfig {
    resolve_with(text, args)
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .1
        .config
}

fn error(text: &str) -> String {
    resolve_with(text, &[]).expect_err(text).to_string()
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn shell(script: &str) -> RunForm {
    RunForm::Shell {
        script: script.to_owned(),
        shell: strings(&["/bin/sh", "-c"]),
    }
}

fn run(form: RunForm) -> Action {
    Action::Run(Run {
        form,
        env: Vec::new(),
        mounts: Vec::new(),
        network: RunNetwork::Default,
    })
}

fn copy(sources: &[&str], dest: &str) -> CopyFiles {
    CopyFiles {
        sources: sources
            .iter()
            .map(|s| Source::Path((*s).to_owned()))
            .collect(),
        from: Origin::Context,
        dest: dest.to_owned(),
        chown: None,
        chmod: None,
        link: false,
        exclude: Vec::new(),
        parents: false,
        unpack: false,
    }
}

#[test]
fn instructions_become_steps() {
    for (lines, expected) in [
        ("RUN a  $A \\\n # no\n  && b", run(shell("a  $A   && b"))),
        (
            "run [\"a\", \"$A\"]",
            run(RunForm::Exec(strings(&["a", "$A"]))),
        ),
        ("RUN [ -f x ] && y", run(shell("[ -f x ] && y"))),
        (
            "ENV A=1 B=\"x y\" C=x\\ y D='$A' E=",
            Action::Env(pairs(&[
                ("A", "1"),
                ("B", "x y"),
                ("C", "x y"),
                ("D", "$A"),
                ("E", ""),
            ])),
        ),
        ("ENV A one  two", Action::Env(pairs(&[("A", "one  two")]))),
        (
            "ENV A=1\nENV A=2 B=$A",
            Action::Env(pairs(&[("A", "2"), ("B", "1")])),
        ),
        (
            "ENV PATH=/x:$PATH",
            Action::Env(pairs(&[("PATH", "/x:/usr/bin:/bin")])),
        ),
        (
            "LABEL \"a b\"=c d=\"e\\\"f\"",
            Action::Label(pairs(&[("a b", "c"), ("d", "e\"f")])),
        ),
        (
            "LABEL multi=\"a \\\nb\"",
            Action::Label(pairs(&[("multi", "a b")])),
        ),
        (
            "WORKDIR a\nWORKDIR ${X:-b}/c",
            Action::Workdir("/a/b/c".to_owned()),
        ),
        ("USER ${U:-me}:grp", Action::User("me:grp".to_owned())),
        (
            "ARG P=\"80 443/udp\"\nEXPOSE $P 1-2",
            Action::Expose(strings(&["80/tcp", "443/udp", "1/tcp", "2/tcp"])),
        ),
        (
            "VOLUME [\"/a b\", \"/c\"]",
            Action::Volume(strings(&["/a b", "/c"])),
        ),
        ("VOLUME /a /b", Action::Volume(strings(&["/a", "/b"]))),
        ("STOPSIGNAL SIGINT", Action::StopSignal("SIGINT".to_owned())),
        (
            "SHELL [\"bash\", \"-c\"]\nRUN x",
            run(RunForm::Shell {
                script: "x".to_owned(),
                shell: strings(&["bash", "-c"]),
            }),
        ),
        ("CMD a $B", Action::Cmd(strings(&["/bin/sh", "-c", "a $B"]))),
        ("CMD []", Action::Cmd(Vec::new())),
        (
            "ENTRYPOINT [\"/a\"]",
            Action::Entrypoint {
                argv: strings(&["/a"]),
                keeps_cmd: false,
            },
        ),
        (
            "CMD [\"x\"]\nENTRYPOINT a",
            Action::Entrypoint {
                argv: strings(&["/bin/sh", "-c", "a"]),
                keeps_cmd: true,
            },
        ),
        (
            "MAINTAINER A <a@b>",
            Action::Maintainer("A <a@b>".to_owned()),
        ),
        ("ARG A=1 B", Action::Arg(strings(&["A=1", "B"]))),
        (
            "HEALTHCHECK NONE",
            Action::Healthcheck(Healthcheck {
                test: strings(&["NONE"]),
                ..Healthcheck::default()
            }),
        ),
        (
            "HEALTHCHECK --interval=5m --timeout=3s --retries=2 \\\n  CMD curl -f http://localhost/ || exit 1",
            Action::Healthcheck(Healthcheck {
                test: strings(&["CMD-SHELL", "curl -f http://localhost/ || exit 1"]),
                interval: 300_000_000_000,
                timeout: 3_000_000_000,
                retries: 2,
                ..Healthcheck::default()
            }),
        ),
        (
            "HEALTHCHECK CMD [\"a\"]",
            Action::Healthcheck(Healthcheck {
                test: strings(&["CMD", "a"]),
                ..Healthcheck::default()
            }),
        ),
    ] {
        assert_eq!(last(lines), expected, "{lines}");
    }
}

#[test]
fn files_are_copied() {
    for (lines, expected) in [
        ("COPY a /b", copy(&["a"], "/b")),
        ("COPY . .", copy(&["."], "/")),
        ("WORKDIR /w\nCOPY /a/ ../b* x", copy(&["a", "b*"], "/w/x/")),
        ("COPY [\"a b\", \"/c d/\"]", copy(&["a b"], "/c d/")),
        ("ENV D=dir\nCOPY $D/x${E} /$D", copy(&["dir/x"], "/dir")),
        (
            "COPY --from=base:1 --chown=1:2 --chmod=0644 --link --exclude=*.md --exclude=!a.md a /b",
            CopyFiles {
                from: Origin::Image("base:1".to_owned()),
                chown: Some("1:2".to_owned()),
                chmod: Some(0o644),
                link: true,
                exclude: strings(&["*.md", "!a.md"]),
                ..copy(&["a"], "/b")
            },
        ),
        (
            "COPY --parents ./x/./**/*.c /b/",
            CopyFiles {
                parents: true,
                ..copy(&["./x/./**/*.c"], "/b/")
            },
        ),
        (
            "ADD a.tar.gz /",
            CopyFiles {
                unpack: true,
                ..copy(&["a.tar.gz"], "/")
            },
        ),
        ("ADD --unpack=false a.tar /", copy(&["a.tar"], "/")),
        (
            "ENV A=1\nCOPY <<EOF <<-'RAW' c /d\n$A \"q\" \\$A\nEOF\n\t$A\n\tRAW",
            CopyFiles {
                sources: vec![
                    Source::Heredoc {
                        name: "EOF".to_owned(),
                        content: "1 \"q\" $A\n".to_owned(),
                    },
                    Source::Heredoc {
                        name: "RAW".to_owned(),
                        content: "$A\n".to_owned(),
                    },
                    Source::Path("c".to_owned()),
                ],
                ..copy(&[], "/d/")
            },
        ),
    ] {
        assert_eq!(last(lines), Action::Copy(expected), "{lines}");
    }
}

#[test]
fn heredocs_are_run() {
    for (lines, expected) in [
        (
            "RUN <<EOF\n# in\na $B\n\nc\nEOF",
            shell("# in\na $B\n\nc\n"),
        ),
        ("RUN <<-EOF\n\ta\n\tEOF", shell("a\n")),
        (
            "RUN cat <<EOF > /x && \\\n  cat <<'X' >> /x\n1\nEOF\n2\nX",
            shell("cat <<EOF > /x &&   cat <<'X' >> /x\n1\nEOF\n2\nX\n"),
        ),
        (
            "RUN python3 <<EOF\nprint(1)\nEOF",
            shell("python3 <<EOF\nprint(1)\nEOF\n"),
        ),
        (
            "RUN <<EOF\n#!/usr/bin/env python3\nprint(1)\nEOF",
            RunForm::File {
                name: "EOF".to_owned(),
                content: "#!/usr/bin/env python3\nprint(1)\n".to_owned(),
            },
        ),
        ("RUN echo $((1 << 2)) <<<x", shell("echo $((1 << 2)) <<<x")),
    ] {
        assert_eq!(last(lines), run(expected), "{lines}");
    }
}

#[test]
fn mounts_and_networks() {
    let Action::Run(run) = last(
        "WORKDIR /w\nENV C=cache\nRUN --mount=target=src,rw --mount=type=cache,target=/$C,sharing=locked,uid=1,mode=0700 \
         --mount=type=cache,id=x,dst=/y,from=img,source=/z,ro --mount=\"type=tmpfs,target=/t,size=64m\" --network=none a",
    ) else {
        panic!("it runs");
    };
    assert_eq!(run.network, RunNetwork::None);
    assert_eq!(run.form, shell("a"));
    let cache = RunMount::Cache {
        id: "/cache".to_owned(),
        target: "/cache".to_owned(),
        sharing: Sharing::Locked,
        from: None,
        source: ".".to_owned(),
        read_only: false,
        uid: 1,
        gid: 0,
        mode: 0o700,
    };
    let other = RunMount::Cache {
        id: "x".to_owned(),
        target: "/y".to_owned(),
        sharing: Sharing::Shared,
        from: Some(Origin::Image("img".to_owned())),
        source: "z".to_owned(),
        read_only: true,
        uid: 0,
        gid: 0,
        mode: 0o755,
    };
    let bind = RunMount::Bind {
        from: Origin::Context,
        source: ".".to_owned(),
        target: "/w/src".to_owned(),
        writable: true,
    };
    let size = Some(64 << 20);
    let target = "/t".to_owned();
    assert_eq!(
        run.mounts,
        [bind, cache, other, RunMount::Tmpfs { target, size }]
    );
}

#[test]
fn bases_with_triggers_are_refused() {
    let recipe = recipe_with("\nFROM a", &[]).expect("it is one");
    let base = Scope::of(RunConfig {
        on_build: strings(&["RUN x"]),
        ..RunConfig::default()
    });
    let error = recipe
        .resolve(0, &base)
        .expect_err("it has triggers")
        .to_string();
    assert!(
        error.starts_with("line 2: an image with ONBUILD"),
        "{error}"
    );
}

#[test]
fn variables_that_double_themselves_have_an_end() {
    let text = format!(
        "FROM a\nENV A=xxxxxxxxxxxxxxxx\n{}",
        "ENV A=$A$A\n".repeat(60)
    );
    assert!(resolve_with(&text, &[]).is_err());
}

proptest! {
    #[test]
    fn nothing_panics(text in ".{0,80}") {
        drop(resolve_with(&text, &[]));
    }

    #[test]
    fn nothing_panics_at_what_looks_like_instructions(
        lines in proptest::collection::vec(
            ("(FROM|RUN|COPY|ADD|ENV|ARG|CMD|LABEL|EXPOSE|HEALTHCHECK|SHELL|VOLUME|USER|WORKDIR|#|# escape=`|EOF|)",
             "( --[a-z]{0,4}=?| --mount=| --from=|)", "[ a0$\\{\\}\\[\\]\"'<\\\\`,:=.☺/-]{0,12}(<<EOF|)"), 0..8),
    ) {
        let text: String = lines.iter().map(|(a, b, c)| format!("{a}{b} {c}\n")).collect();
        drop(resolve_with(&text, &[("a", "b")]));
        drop(resolve_with(&format!("FROM a\n{text}"), &[("a", "b")]));
    }
}
