//! Which arguments and stages are seen from where.

use super::*;

#[test]
fn arguments_have_their_scopes() {
    let env = |text: &str, args: &[(&str, &str)]| end(text, args).env("X").map(str::to_owned);
    for (text, args, expected) in [
        ("ARG A=1\nFROM b\nENV X=$A", &[] as &[(&str, &str)], ""),
        ("ARG A=1\nFROM b\nARG A\nENV X=$A", &[], "1"),
        ("ARG A=1\nFROM b\nARG A\nENV X=$A", &[("A", "2")], "2"),
        ("ARG A=1\nFROM b\nARG A=3\nENV X=$A", &[], "3"),
        ("ARG A=1\nFROM b\nARG A=3\nENV X=$A", &[("A", "2")], "2"),
        ("FROM b\nENV X=$A\nARG A=1", &[("A", "2")], ""),
        ("FROM b\nARG A=1\nENV A=2\nENV X=$A", &[("A", "3")], "2"),
        ("FROM b\nARG A=1\nENV X=${A:-d}", &[("A", "")], "d"),
        ("FROM b AS one\nARG A=1\nFROM c\nENV X=$A", &[], ""),
        ("FROM b AS one\nARG A=1\nFROM one\nENV X=$A", &[], "1"),
        ("FROM b AS one\nENV A=1\nFROM One\nENV X=$A", &[], "1"),
        ("FROM b\nENV X=$TARGETARCH", &[], ""),
        (
            "FROM b\nARG TARGETARCH\nARG BUILDPLATFORM\nENV X=$TARGETARCH-$BUILDPLATFORM",
            &[],
            "arm64-linux/amd64",
        ),
        ("ARG V=1\nARG A=x$V\nFROM b\nARG A\nENV X=$A", &[], "x1"),
    ] {
        assert_eq!(
            env(text, args).as_deref(),
            Some(expected),
            "{text} {args:?}"
        );
    }
}

#[test]
fn programs_find_arguments_but_images_do_not() {
    let text = "FROM b\nARG A=1\nARG B\nARG C=3\nENV C=4\nRUN x";
    let given = [("HTTP_PROXY", "http://u:p@h"), ("TYPO", "1"), ("B", "b c")];
    let (steps, scope) = resolve_with(text, &given).expect("it can be followed");
    let step = steps.last().expect("there is one");
    let Action::Run(run) = &step.action else {
        panic!("it runs")
    };
    assert_eq!(
        run.env,
        pairs(&[("A", "1"), ("B", "b c"), ("HTTP_PROXY", "http://u:p@h")])
    );
    assert_eq!(
        step.created_by(),
        "RUN |2 A=1 B=b c /bin/sh -c x # buildkit"
    );
    assert_eq!(scope.config.env, ["PATH=/usr/bin:/bin", "C=4"]);
    assert_eq!(
        recipe_with(text, &given).expect("it is one").unused_args(),
        ["TYPO"]
    );
}

#[test]
fn stages_are_found() {
    let text = "ARG V=12\nFROM --platform=$BUILDPLATFORM debian:${V} AS Base\nFROM base AS build\nRUN a\n\
        FROM alpine AS unused\nFROM scratch\nCOPY --from=build a /\nRUN --mount=from=0,target=/m b";
    let dockerfile = Dockerfile::parse(text).expect("it is one");
    let recipe = dockerfile.recipe(&options(&[])).expect("it is one");
    let stages = recipe.stages();
    assert_eq!(stages[0].base, Base::Image("debian:12".to_owned()));
    assert_eq!(
        stages[0].platform,
        Some("linux/amd64".parse().expect("it is one"))
    );
    assert_eq!(stages[0].name.as_deref(), Some("base"));
    assert_eq!(stages[1].base, Base::Stage(0));
    assert_eq!(stages[3].base, Base::Scratch);
    assert_eq!((recipe.target(), recipe.order()), (3, vec![0, 1, 3]));
    for (target, expected) in [
        ("UNUSED", Ok(2)),
        ("1", Ok(1)),
        ("4", Err("there is no stage \"4\"")),
        (
            "biuld",
            Err("there is no stage \"biuld\": did you mean build?"),
        ),
    ] {
        let options = Options {
            target: Some(target.to_owned()),
            ..options(&[])
        };
        let found = dockerfile
            .recipe(&options)
            .map(|r| r.target())
            .map_err(|e| e.to_string());
        assert_eq!(
            found.as_ref().map_err(String::as_str),
            expected.as_ref().map_err(|e| *e)
        );
    }
}
