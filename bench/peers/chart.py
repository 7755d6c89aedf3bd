"""A bar for each model: how many times as long as RLX the best peer takes."""

import math
from html import escape

import report

ROW, TOP, LEFT, WIDTH = 18, 58, 330, 430
STYLE = """\
text{font-family:ui-sans-serif,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif;font-size:12px;fill:#1c2128}
.t{font-size:14px;font-weight:600}.q{fill:#656d76}.bg{fill:#fff}
.ahead{fill:#1a7f37}.behind{fill:#bc4c00}.one{stroke:#57606a}.grid{stroke:#d8dee4}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.q{fill:#9198a1}.bg{fill:#0d1117}
.ahead{fill:#3fb950}.behind{fill:#db6d28}.one{stroke:#8b949e}.grid{stroke:#21262d}}"""


def svg(described, rows):
    rows = sorted((r for r in rows if r["ratio_min"]), key=lambda r: -r["ratio_min"])
    # A power of two to each side at least; the axis is logarithmic, so that half and twice are as long.
    reach = max([1.0, *(abs(math.log2(r["ratio_min"])) for r in rows)])
    reach = math.ceil(2 * reach) / 2
    height = TOP + ROW * len(rows) + 40
    at = lambda ratio: LEFT + WIDTH * (math.log2(ratio) + reach) / (2 * reach)  # noqa: E731
    body = [
        f'<text class="t" x="12" y="22">The best peer\'s time over RLX\'s: to the right of 1, RLX is faster</text>',
        f'<text class="q" x="12" y="40">{escape(report.heading(described))}</text>',
    ]
    for power in range(math.ceil(-reach), math.floor(reach) + 1):
        x, kind = at(2.0**power), "grid" if power else "one"
        body.append(f'<line class="{kind}" x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{height - 32}"/>')
        body.append(f'<text class="q" x="{x:.1f}" y="{height - 16}" text-anchor="middle">{2.0**power:g}</text>')
    for number, row in enumerate(rows):
        body += bar(row, TOP + ROW * number, at)
    width = LEFT + WIDTH + 130
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">\n'
        f'<style>{STYLE}</style>\n<rect class="bg" width="100%" height="100%"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def bar(row, y, at):
    """A model's name, its bar from 1 to its ratio, and who the best peer is."""
    ratio, one = row["ratio_min"], at(1.0)
    end = at(ratio)
    name, sizes, precision, threads = report.about(row)
    label = f"{name} {sizes if sizes != 'fixed' else ''} {precision if precision != 'f32' else ''}".strip()
    kind = "ahead" if ratio >= 1 else "behind"
    label = f"{' '.join(label.split())}, {threads}T"
    label = label if len(label) <= 52 else label[:51] + "…"
    return [
        f'<text x="{LEFT - 10}" y="{y + 12}" text-anchor="end">{escape(label)}</text>',
        f'<rect class="{kind}" x="{min(one, end):.1f}" y="{y + 2}" width="{max(abs(end - one), 1):.1f}" height="{ROW - 5}"/>',
        f'<text class="q" x="{LEFT + WIDTH + 8}" y="{y + 12}">{ratio:.2f} {escape(report.TITLES[row["best"]])}</text>',
    ]
