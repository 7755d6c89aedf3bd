"""Rows of figures as text, as tables for docs/performance/, and in one number."""

import math

from peer import KINDS

TITLES = {kind.name: kind.title for kind in KINDS}


def derived(row, wrong):
    """The best peer, the ratios to it, and how near RLX is to what the machine reaches."""
    ours, peers = row["peers"].get("rlx"), {n: p for n, p in row["peers"].items() if n != "rlx"}
    right = {name: p for name, p in peers.items() if p["differs"] <= wrong}
    best = min(right, key=lambda name: right[name]["min_ms"], default=None)
    made = {"best": best, "ratio_min": None, "ratio_median": None, "of_peak": None, "of_read": None}
    if ours and best:
        quickest = min(p["median_ms"] for p in right.values())
        made |= {"ratio_min": right[best]["min_ms"] / ours["min_ms"], "ratio_median": quickest / ours["median_ms"]}
    limits, read = row["limits"], row["limits"].get("read_gb_s")
    # Numbers of 16 bits can be widened: where their own products are slower, those of f32 are the peak.
    peaks = (limits.get(f"{row['precision']}_gflops"), limits.get("f32_gflops"))
    peak = max(filter(None, peaks), default=None)
    if ours and peak and row["flops"]:
        made["of_peak"] = row["flops"] / 1e6 / ours["min_ms"] / peak
    if ours and read:
        made["of_read"] = row["weight_bytes"] / 1e6 / ours["min_ms"] / read
    return made


def heading(described):
    versions = ", ".join(f"{name} {number}" for name, number in described["versions"].items())
    shared = "; two logical processors share a core" if described["shared_cores"] else ""
    return f"{described['date']}, {described['cpu']}{shared}; {versions}"


def lines(row):
    """What one comparison gave, for a terminal."""
    made = [f"{row['model']}, {row['precision']}, {counted(row['threads'])}"]
    for name, p in row["peers"].items():
        memory = f"{p['peak_bytes'] / 1e6:6.0f} MB" if p["peak_bytes"] else "       –"
        made.append(
            f"  {TITLES[name]:14} {p['precision']:4} min {p['min_ms']:9.4g} ms  median {p['median_ms']:9.4g}  "
            f"to the first output {p['start_ms']:7.0f}  {memory}  differs {p['differs']:.0e}"
        )
    made += [f"  {TITLES[name]:14} cannot: {why}" for name, why in row["failed"].items()]
    if row["ratio_min"]:
        made.append(f"  {TITLES[row['best']]} / RLX: {row['ratio_min']:.2f} (medians {row['ratio_median']:.2f}){limits(row)}")
    return "\n".join(made)


def limits(row):
    """RLX's share of the peak of arithmetic, and of reading memory if each weight is read once."""
    shares = [("of_peak", "of peak"), ("of_read", "of bandwidth")]
    return "".join(f"; {percent(row[key])} {what}" for key, what in shares if row[key] is not None)


def percent(share):
    return "–" if share is None else f"{100 * share:.0f} %"


def counted(threads):
    return f"{threads} thread{'s' * (threads > 1)}"


def geometric(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def summary(rows):
    """The geometric mean over all rows, and the rows in which RLX is behind, for each precision and number of threads."""
    made = []
    for precision, threads in dict.fromkeys((r["precision"], r["threads"]) for r in rows):
        ratios = [r["ratio_min"] for r in rows if (r["precision"], r["threads"]) == (precision, threads) and r["ratio_min"]]
        if ratios:
            behind = sum(ratio < 0.97 for ratio in ratios)
            made.append(
                f"{precision}, {counted(threads)}: the best peer takes {geometric(ratios):.2f} times as long as RLX "
                f"(geometric mean of {len(ratios)}); RLX is behind in {behind}"
            )
    return "\n".join(made)


def markdown(described, rows):
    """Two tables: times, and starting and memory. Milliseconds are minima."""
    names = [name for name in TITLES if any(name in row["peers"] for row in rows)]
    titles = [TITLES[name] for name in names]
    times = table(
        ["model", "sizes", "type", "threads", *titles, "best peer / RLX", "of medians", "of peak", "of bandwidth", "differs"],
        ([*about(row), *(cell(row, n, "min_ms") for n in names), *ratios(row)] for row in rows),
    )
    starts = table(
        ["model", "sizes", "type", "threads", *titles],
        ([*about(row), *(start(row, n) for n in names)] for row in rows),
    )
    return f"{heading(described)}.\n\n{times}\n{summary(rows)}\n\n{starts}"


def table(heads, rows):
    made = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join(made + [f"| {' | '.join(cells)} |" for cells in rows]) + "\n"


def about(row):
    name, _, sizes = row["model"].partition(" ")
    return [name, sizes.replace("=", " ").replace(",", ", ") or "fixed", row["precision"], str(row["threads"])]


def cell(row, name, figure):
    return f"{row['peers'][name][figure]:.4g}" if name in row["peers"] else "–"


def start(row, name):
    if name not in row["peers"]:
        return "–"
    peak = row["peers"][name]["peak_bytes"]
    return f"{row['peers'][name]['start_ms']:.0f} ms" + (f", {peak / 1e6:.0f} MB" if peak else "")


def ratios(row):
    if not row["ratio_min"]:
        return ["–"] * 5
    return [
        f"{row['ratio_min']:.2f}", f"{row['ratio_median']:.2f}", percent(row["of_peak"]), percent(row["of_read"]),
        f"{row['peers']['rlx']['differs']:.0e}",
    ]  # fmt: skip
