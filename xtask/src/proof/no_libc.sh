#!/bin/sh
# Builds cosm where there is no libc.a, no other target and no network, and runs what came out of it. Started in mount
# and network namespaces of its own, so what is hidden here is hidden from nobody else. Speaks as verdict.rs reads.
#
# $1: an empty folder for scratch, $2: the target folder, $3: the workspace, $4: cargo
set -eu
scratch=$1 target=$2 repo=$3 cargo=$4

pass() { echo "PASS $1"; }
fail() { echo "FAIL $1: $2"; }

# Mounts over a folder a view of it in which the given names are not there. An empty file in their place would not do:
# it is found, and then is no archive.
hide() {
    folder=$1
    shift
    layer=$scratch/layer$(echo "$folder" | tr / _)
    mkdir -p "$layer"
    mount -t tmpfs none "$layer"
    mkdir "$layer/upper" "$layer/work"
    for name; do mknod "$layer/upper/$name" c 0 0; done
    mount -t overlay -o "lowerdir=$folder,upperdir=$layer/upper,workdir=$layer/work" none "$folder"
}

cat > "$scratch/static.c" <<'C'
int main(void) { return 0; }
C
if cc -static -o "$scratch/static" "$scratch/static.c"; then
    pass "control: a static C program links before libc.a is hidden"
else
    echo "SKIP control: a static C program links before libc.a is hidden: this host has no libc.a to hide"
fi

# What distributions that package static libraries apart leave out. The others are empty, or needed by every program
# that is linked dynamically too.
for folder in $(cc -print-file-name=libc.so | xargs dirname) /usr/lib/musl /usr/local/musl; do
    [ -d "$folder" ] || continue
    folder=$(readlink -f "$folder")
    names=$(cd "$folder" && find . -maxdepth 1 \( -name 'libc.a' -o -name 'libm*.a' -o -name 'libanl.a' \
        -o -name 'libresolv.a' -o -name 'libBrokenLocale.a' \) -printf '%f\n')
    # shellcheck disable=SC2086 # names of archives hold no spaces
    [ -z "$names" ] || hide "$folder" $names
done
host=$(rustc -vV | sed -n 's/^host: //p')
rustlib=$(rustc --print sysroot)/lib/rustlib
others() { (cd "$rustlib" && find . -mindepth 2 -maxdepth 2 -name lib ! -path "./$host/*" | cut -d / -f 2); }
others=$(others)
# shellcheck disable=SC2086 # names of targets hold no spaces
[ -z "$others" ] || hide "$rustlib" $others

if found=$(cc -print-file-name=libc.a) && [ "$found" != libc.a ]; then
    fail "libc.a is hidden" "$found"
else
    pass "libc.a is hidden"
fi
if cc -static -o "$scratch/static" "$scratch/static.c" 2> "$scratch/static.log"; then
    fail "no static C program can be linked" "one was"
else
    pass "no static C program can be linked"
fi
others=$(others)
if [ -z "$others" ]; then
    pass "there is no target but the host's"
else
    fail "there is no target but the host's" "$others"
fi

export CARGO_NET_OFFLINE=true CARGO_TARGET_DIR="$target"
cd "$repo"
# The agent is what could need a libc: it is made anew each time, the rest only when it has changed.
"$cargo" clean --quiet --release -p cosm-agent-image
began=$(date +%s)
if "$cargo" build --locked --release -p cosm-cli > "$scratch/build.log" 2>&1; then
    pass "cargo build"
else
    fail "cargo build" "$(tail -n 20 "$scratch/build.log")"
    echo END
    exit
fi
echo "NOTE cargo build took $(($(date +%s) - began)) s"
began=$(date +%s)
if "$cargo" install --locked --path crates/cli --root "$scratch/installed" > "$scratch/install.log" 2>&1; then
    pass "cargo install --path"
else
    fail "cargo install --path" "$(tail -n 20 "$scratch/install.log")"
fi
echo "NOTE cargo install took $(($(date +%s) - began)) s"

# The folder as a user would copy it, and then nothing of where it was made.
mkdir "$scratch/copied"
find "$target/release" -maxdepth 1 -type f -exec cp -t "$scratch/copied" {} +
cd /
mount -t tmpfs none "$target"
mount -t tmpfs none "$repo"
export COSM_HOME="$scratch/home" XDG_RUNTIME_DIR="$scratch/run"
mkdir -m 700 "$XDG_RUNTIME_DIR"
for place in installed/bin copied; do
    cosm=$scratch/$place/cosm
    if said=$("$cosm" --version 2>&1); then
        pass "$place: $said"
    else
        fail "$place: cosm --version" "$said"
    fi
    if said=$("$cosm" run -- sh -c 'echo in the sandbox' 2>&1) && [ "$said" = "in the sandbox" ]; then
        pass "$place: cosm run"
    else
        fail "$place: cosm run" "$said"
    fi
done
echo END
