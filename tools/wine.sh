#!/bin/sh
# Runs a Windows program under Wine: `wine.sh ROOT PROGRAM [ARGUMENT…]`, where ROOT is a Debian system made by the suite `windows`
# (cargo xtask test --suite windows). Wine's DirectX 12 (vkd3d) runs on Mesa's software Vulkan device. The folders that the program
# needs are at the same paths there; mounts end with the process.
set -eu
root=$1
shift
exec unshare --mount sh -c '
    root=$1 folder=$PWD
    shift
    for shared in /proc /dev "$RLX_WINE_SHARED" "${RLX_WINE_TARGET:-$RLX_WINE_SHARED}" "${RLX_CACHE_DIR:-$HOME/.cache}"; do
        mkdir -p "$root$shared" "$shared"
        mount --bind "$shared" "$root$shared"
    done
    cd /
    exec chroot "$root" sh -c '\''
        set -eu
        cd "$1"
        shift
        # The compiler of HLSL that Wine has does not know all that kernels need; this one is of Microsoft. (No apostrophes here.)
        export WINEDLLOVERRIDES="d3dcompiler_47=n" WINEDEBUG=-all
        export HOME=/opt/wine XDG_RUNTIME_DIR=/run/wine DISPLAY=:77
        export WINEPREFIX="$HOME/prefix"
        export VK_DRIVER_FILES=/usr/share/vulkan/icd.d/lvp_icd.json
        mkdir -p -m 700 "$HOME" "$XDG_RUNTIME_DIR"
        Xvfb :77 -screen 0 640x480x24 >/dev/null 2>&1 &
        screen=$!
        # A program finds the system folder before any other, so the compiler goes there, over the one of Wine.
        system=$WINEPREFIX/drive_c/windows/system32
        [ -d "$system" ] || wineboot --init 2>/dev/null
        cmp -s /opt/d3dcompiler/d3dcompiler_47.dll "$system/d3dcompiler_47.dll" ||
            cp /opt/d3dcompiler/d3dcompiler_47.dll "$system"
        code=0
        wine "$@" 2>/tmp/errors || code=$?
        # Said at every start, about 32-bit programs.
        grep -a -v -E "wine32|multiarch|apt-get" /tmp/errors >&2 || true
        kill "$screen" || true
        wineserver -k 2>/dev/null || true
        exit "$code"
    '\'' sh "$folder" "$@"
' sh "$root" "$@"
