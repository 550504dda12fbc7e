#!/usr/bin/env bash
# Oracle: compare.html of the fixture reports/test/fixtures/tiny. Its policy names the SHA-256 of its
# own script and style sheets, as openssl computes them; else a browser would run and show nothing.
# With Chromium (CHROMIUM names it, or it is in PATH): the page loads without an error on the console;
# sinks go off and on; pointing shows values (wal's p99 of second 2 is 7 ms in the fixture's ledger, and a pixel is 1 %); zoom
# changes the axis of all charts over time, and goes back; what it should not load it can't.
# Without one: SKIP, after the first part.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    printf 'FAIL: %s\n' "$*" >&2
    exit 1
}

cp -r reports/test/fixtures/tiny "$scratch/runs"
"$SLUICE_BIN/sluice" report "$scratch/runs" >"$scratch/says" || fail "$(cat "$scratch/says")"
page=$scratch/runs/compare.html

# ---- the policy ----

# Prints the nth text between <$1> and </$1>, byte for byte.
between() {
    awk -v tag="$1" -v n="$2" 'BEGIN { RS = "<" tag ">" } NR == n + 1 { sub("</" tag ">.*", ""); printf "%s", $0 }' "$page"
}
for part in 'script 1' 'style 1' 'style 2'; do
    # shellcheck disable=SC2086 # two words
    hash=$(between $part | openssl dgst -sha256 -binary | openssl base64)
    grep -qF "'sha256-$hash'" "$page" || fail "the policy does not allow the page's own $part ($hash)"
done

# ---- in a browser ----

browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || true)}
if [ -z "$browser" ]; then
    printf 'SKIP: no Chromium: the page was checked, and not run (set CHROMIUM, or install chromium)\n'
    exit 77
fi
cat >"$scratch/runs/harness.html" <<'END'
<!doctype html><title>harness</title><body><pre id="out">not done</pre><script>
var frame = document.createElement('iframe'), out = [];
function say(name, value) { out.push(name + '=' + value); }
frame.style.width = '900px';
frame.style.height = '3000px';
frame.onload = function () {
    try {
        var page = frame.contentDocument, view = frame.contentWindow, boxes = page.querySelectorAll('.bar input');
        var shown = function (selector) {
            return Array.prototype.filter.call(page.querySelectorAll(selector), function (e) { return view.getComputedStyle(e).display !== 'none'; }).length;
        };
        var chart = page.querySelector('#chart-latency'), box = chart.getBoundingClientRect();
        var plot = page.querySelector('#chart-latency .p').dataset.plot.split(' ').map(Number), scale = box.width / 560;
        var fire = function (type, share) {
            chart.dispatchEvent(new view.PointerEvent(type, { bubbles: true, clientX: box.left + scale * (plot[0] + plot[2] * share),
                clientY: box.top + scale * (plot[1] + plot[3] / 2) }));
        };
        var axis = function () {
            return Array.prototype.map.call(page.querySelectorAll('#chart-backlog .x text'), function (t) { return t.textContent; }).join(' ');
        };
        say('boxes', boxes.length);
        say('lines', shown('.p g.s0') > 5 && shown('.p g.s1') > 1);
        boxes[0].click();
        say('off', shown('.p g.s0') + ' ' + (shown('.p g.s1') > 1));
        boxes[0].click();
        say('on', shown('.p g.s0') > 5);
        fire('pointermove', 2.5 / 20);
        say('tip', Array.prototype.map.call(page.querySelectorAll('.tip div'), function (d) { return d.children[0].textContent + ' ' + d.children[1].textContent; }).join(', '));
        say('before', axis());
        fire('pointerdown', 0.25);
        fire('pointermove', 0.5);
        fire('pointerup', 0.5);
        say('zoomed', axis());
        page.querySelector('.reset').click();
        say('after', axis());
        var injected = page.createElement('script');
        injected.textContent = 'window.injected = 1';
        page.body.appendChild(injected);
        say('injected', view.injected);
        say('dark', view.matchMedia('(prefers-color-scheme: dark)').matches + ' ' + view.getComputedStyle(page.body).backgroundColor);
        say('wide', page.documentElement.scrollWidth <= frame.clientWidth);
    } catch (error) { say('error', error); }
    document.getElementById('out').textContent = out.join('\n') + '\n';
};
frame.src = 'compare.html';
document.body.appendChild(frame);
</script>
END
# 0 is dark, 1 light. A profile of its own; nothing is fetched.
browse() { # $1: scheme, $2: page; the DOM goes to $scratch/dom, the console to $scratch/console
    HOME=$scratch timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync --allow-file-access-from-files \
        --user-data-dir="$scratch/profile" --blink-settings="preferredColorScheme=$1" --enable-logging=stderr \
        --virtual-time-budget=10000 --dump-dom "file://$2" >"$scratch/dom" 2>"$scratch/console" ||
        fail "$browser ended with an error: $(tail -n 3 "$scratch/console")"
}
expect() {
    grep -qxF -- "$1" "$scratch/dom" || fail "expected \"$1\" in: $(sed -n '/<pre/,/<\/pre/p' "$scratch/dom")"
}

browse 1 "$page"
if grep -q CONSOLE "$scratch/console"; then fail "the console says: $(grep CONSOLE "$scratch/console")"; fi
for scheme in 1 0; do
    browse $scheme "$scratch/runs/harness.html"
    sed -i 's/<pre id="out">/&\n/' "$scratch/dom"
    expect 'boxes=2'
    expect 'lines=true'
    expect 'off=0 true'
    expect 'on=true'
    expect 'before=0 5 10 15 20'
    expect 'zoomed=5 6 7 8 9 10'
    expect 'after=0 5 10 15 20'
    expect 'injected=undefined'
    expect 'wide=true'
    if [ $scheme = 0 ]; then expect 'dark=true rgb(13, 17, 23)'; else expect 'dark=false rgb(255, 255, 255)'; fi
    grep -qE '^tip=at 2\.5 s, wal (6\.9[0-9]|7|7\.0[0-9]) ms,' "$scratch/dom" || fail "pointing shows: $(grep ^tip "$scratch/dom")"
    # The script that the harness put in is the one thing the policy had to stop.
    if grep CONSOLE "$scratch/console" | grep -v 'Content Security Policy'; then fail 'the console has something to say'; fi
    grep -q 'CONSOLE.*Content Security Policy' "$scratch/console" || fail 'nothing stopped a foreign script'
done
printf 'compare.html: policy, console, sinks, pointing, zoom, light and dark as they should be\n'
