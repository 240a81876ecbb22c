//! Dockerfiles of the kind that people have, and what becomes of them.

use super::*;

const GO: &str = r#"# syntax=docker/dockerfile:1
ARG GO_VERSION=1.23
FROM --platform=$BUILDPLATFORM golang:${GO_VERSION}-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod \
    go mod download -x
ARG TARGETOS TARGETARCH
RUN --mount=type=bind,target=. \
    # caches of the compiler
    --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -o /bin/server ./cmd/server

FROM build AS test
RUN go test ./...

FROM gcr.io/distroless/static-debian12:nonroot AS final
COPY --link --from=build /bin/server /server
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/server"]
"#;

#[test]
fn go() {
    let recipe = recipe_with(GO, &[("GO_VERSION", "1.24")]).expect("it is one");
    assert_eq!(recipe.order(), [0, 2]);
    assert_eq!(
        recipe.stages()[0].base,
        Base::Image("golang:1.24-alpine".to_owned())
    );
    let (steps, scope) = recipe
        .resolve(0, &Scope::default())
        .expect("it can be followed");
    assert_eq!(
        steps.iter().map(|s| s.line).collect::<Vec<_>>(),
        [4, 5, 6, 8, 9]
    );
    assert_eq!(
        steps[1].action,
        Action::Copy(copy(&["go.mod", "go.sum"], "/src/"))
    );
    let Action::Run(run) = &steps[4].action else {
        panic!("it runs")
    };
    assert_eq!(
        run.env,
        pairs(&[("TARGETOS", "linux"), ("TARGETARCH", "arm64")])
    );
    assert_eq!(
        run.mounts.iter().map(RunMount::target).collect::<Vec<_>>(),
        ["/src", "/root/.cache/go-build"]
    );
    assert_eq!(
        run.form,
        shell(
            "CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -o /bin/server ./cmd/server"
        )
    );
    assert!(scope.config.env.is_empty());
    let config = end(GO, &[]);
    assert_eq!(config.entrypoint, ["/server"]);
    assert!(config.cmd.is_empty(), "the base's does not fit");
    assert_eq!(config.user, "65532:65532");
}

const PYTHON: &str = r#"FROM python:3.12-slim AS base
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

FROM base AS deps
ENV VIRTUAL_ENV=/opt/venv
ENV PATH="$VIRTUAL_ENV/bin:$PATH"
RUN set -eux; \
    apt-get update; \
    apt-get install -y --no-install-recommends gcc; \
    rm -rf /var/lib/apt/lists/*
RUN python -m venv "$VIRTUAL_ENV"
COPY requirements*.txt .
RUN pip install --no-cache-dir -r requirements.txt

FROM base
LABEL org.opencontainers.image.source="https://example.com/x" \
      org.opencontainers.image.licenses=MIT
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /app
COPY --from=deps --chown=1000:1000 /opt/venv /opt/venv
COPY --chown=1000:1000 . .
COPY <<EOF /app/settings.ini
[server]
path = $PATH
EOF
USER 1000
HEALTHCHECK --interval=30s --timeout=5s CMD python -c "import urllib.request as u; u.urlopen('http://localhost')"
CMD ["gunicorn", "app:app", "--bind", "0.0.0.0:8000"]
"#;

#[test]
fn python() {
    let (steps, scope) = resolve_with(PYTHON, &[]).expect("it can be followed");
    assert_eq!(
        scope.config.env,
        [
            "PATH=/opt/venv/bin:/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE=1",
            "PYTHONUNBUFFERED=1"
        ]
    );
    let Action::Copy(heredoc) = &steps[5].action else {
        panic!("it copies")
    };
    assert_eq!(
        heredoc.sources,
        [Source::Heredoc {
            name: "EOF".to_owned(),
            content: "[server]\npath = /opt/venv/bin:/usr/bin:/bin\n".to_owned()
        }]
    );
    assert_eq!(heredoc.dest, "/app/settings.ini");
    assert_eq!(
        steps[5].text,
        "COPY <<EOF /app/settings.ini\n[server]\npath = $PATH\nEOF"
    );
    assert_eq!(
        steps[4].action,
        Action::Copy(CopyFiles {
            chown: Some("1000:1000".to_owned()),
            ..copy(&["."], "/app/")
        })
    );
    assert_eq!(
        scope.config.cmd,
        ["gunicorn", "app:app", "--bind", "0.0.0.0:8000"]
    );
    assert_eq!(scope.config.labels.len(), 2);
    let recipe = recipe_with(PYTHON, &[]).expect("it is one");
    assert_eq!(recipe.order(), [0, 1, 2]);
    assert_eq!(recipe.stages()[2].base, Base::Stage(0));
}

const NODE: &str = r#"
ARG NODE=22
FROM node:${NODE}-alpine as deps
WORKDIR /app
COPY package.json package-lock.json* ./
RUN npm ci

FROM node:${NODE}-alpine as builder
WORKDIR /app
ARG NEXT_PUBLIC_API
ENV NEXT_PUBLIC_API=${NEXT_PUBLIC_API:-http://localhost}
COPY --from=deps /app/node_modules ./node_modules
COPY . .
RUN <<EOF
set -e
npm run build
npm prune --omit=dev
EOF

FROM node:${NODE}-alpine as runner
WORKDIR /app
ENV NODE_ENV production
RUN addgroup -S nodejs && adduser -S nextjs -G nodejs
COPY --from=builder --chown=nextjs:nodejs /app/.next ./.next
COPY --from=builder /app/node_modules ./node_modules
USER nextjs
EXPOSE 3000
STOPSIGNAL SIGQUIT
ENTRYPOINT ["docker-entrypoint.sh"]
CMD npm start
"#;

#[test]
fn node() {
    let recipe = recipe_with(NODE, &[("NEXT_PUBLIC_API", "https://api")]).expect("it is one");
    assert!(recipe.unused_args().is_empty());
    let (steps, scope) = recipe
        .resolve(1, &Scope::default())
        .expect("it can be followed");
    assert_eq!(scope.config.env, ["NEXT_PUBLIC_API=https://api"]);
    let Action::Run(run) = &steps[5].action else {
        panic!("it runs")
    };
    assert_eq!(
        run.form,
        shell("set -e\nnpm run build\nnpm prune --omit=dev\n")
    );
    let Action::Copy(copied) = &steps[3].action else {
        panic!("it copies")
    };
    assert_eq!(
        (&copied.from, copied.dest.as_str()),
        (&Origin::Stage(0), "/app/node_modules")
    );
    let config = end(NODE, &[]);
    assert_eq!(
        serde_json::to_value(&config).expect("it is JSON"),
        serde_json::json!({
            "User": "nextjs", "ExposedPorts": {"3000/tcp": {}}, "WorkingDir": "/app", "StopSignal": "SIGQUIT",
            "Env": ["PATH=/usr/bin:/bin", "NODE_ENV=production"],
            "Entrypoint": ["docker-entrypoint.sh"], "Cmd": ["/bin/sh", "-c", "npm start"],
        })
    );
}
