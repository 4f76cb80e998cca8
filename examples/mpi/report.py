"""Tables and plots of what a request took, beside the figures of the document whose experiments these are.

The document: A. Malinowski, "Using Redis supported by NVRAM in HPC applications", Computer Science 18(3), 2017. One request at a
time by hiredis, a Redis in memory on one node with 10 Gb/s Ethernet, up to 800 processes on 100 others.
"""

import os

# Milliseconds that a request took there at most, and what it says about it.
DOCUMENT = {
    "ngrams": (10, "below 10 ms, whatever the number of processes (figure 3)"),
    "graph": (10, "below 10 ms for an edge, whatever the number of processes (figure 4); here a request adds ten edges"),
    "store": (9, "below 9 ms up to 128 B, about 14 ms for 2 kB (figure 6)"),
    "load": (9, "below 9 ms up to 512 B, about 14 ms for 2 kB (figure 5)"),
}


def document(part):
    """The document's figure for a part of a program, as text; empty if it has none."""
    kind, _, size = part.partition("-")
    if kind not in DOCUMENT or size == "read":
        return ""
    if size == "2048":
        return "about 14,000"
    return "" if size and int(size) > (128 if kind == "store" else 512) else f"< {DOCUMENT[kind][0] * 1000:,}"


def table(results, mpi):
    """Lines of Markdown."""
    yield f"Processes of {mpi}; a window of 32 requests each. The time of a request is that of a process by its requests.\n"
    yield "| program | processes | requests | seconds | requests a second | a request, µs | the document, µs |"
    yield "|---|---|---|---|---|---|---|"
    for language, part, ranks, requests, seconds, micros, _ in results:
        yield (f"| {part}, {language} | {ranks} | {requests:,} | {seconds:.3f} | {requests / max(seconds, 1e-6):,.0f} "
               f"| {micros:,.1f} | {document(part)} |")


def plot(title, lines, limit, path):
    """Draws microseconds a request over the number of processes, both as logarithms, as SVG. `lines` are lists of such pairs by their
    names; `limit` is the document's figure, or None."""
    from math import log2, log10

    width, height, left, bottom = 640, 400, 70, 50
    points = [point for line in lines.values() for point in line] + ([(1, limit)] if limit else [])
    right = max(log2(ranks) for ranks, _ in points) or 1
    low = min(log10(micros) for _, micros in points) - 0.2
    high = max(log10(micros) for _, micros in points) + 0.2

    def x(ranks):
        return left + log2(ranks) / right * (width - left - 150)

    def y(micros):
        return height - bottom - (log10(micros) - low) / (high - low) * (height - bottom - 40)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>', f'<text x="{left}" y="20" font-size="14">{title}</text>',
           f'<text x="{left}" y="{height - 10}">processes</text>',
           f'<text x="12" y="{height / 2}" transform="rotate(-90 12 {height / 2})">µs a request</text>']
    for power in range(int(low) - 1, int(high) + 2):
        if low <= power <= high:
            out.append(f'<line x1="{left}" x2="{width - 150}" y1="{y(10**power)}" y2="{y(10**power)}" stroke="#ddd"/>'
                       f'<text x="{left - 8}" y="{y(10**power) + 4}" text-anchor="end">{10**power:g}</text>')
    for ranks in sorted({ranks for line in lines.values() for ranks, _ in line}):
        out.append(f'<text x="{x(ranks)}" y="{height - bottom + 18}" text-anchor="middle">{ranks}</text>')
    colours = ["#1b6ca8", "#c8553d", "#3c8d5a", "#7a5195", "#8d6e00", "#444"]
    if limit:
        out.append(f'<line x1="{left}" x2="{width - 150}" y1="{y(limit)}" y2="{y(limit)}" stroke="black" stroke-dasharray="6 4"/>'
                   f'<text x="{width - 145}" y="{y(limit) + 4}">the document</text>')
    for nth, (name, line) in enumerate(lines.items()):
        colour = colours[nth % len(colours)]
        path_points = " ".join(f"{x(ranks):.1f},{y(micros):.1f}" for ranks, micros in line)
        out.append(f'<polyline points="{path_points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x(ranks):.1f}" cy="{y(micros):.1f}" r="3" fill="{colour}"/>' for ranks, micros in line]
        last = line[-1]
        out.append(f'<text x="{x(last[0]) + 8:.1f}" y="{y(last[1]) + 4:.1f}" fill="{colour}">{name}</text>')
    out.append("</svg>")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out))


def write(results, mpi, folder):
    text = "\n".join(table(results, mpi))
    print(text)
    if not folder:
        return
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "results.md"), "w", encoding="utf-8") as file:
        file.write(text + "\n\n" + "\n".join(f"* {kind}: {says}" for kind, (_, says) in DOCUMENT.items()) + "\n")
    for kind, (limit, _) in DOCUMENT.items():
        lines = {}
        for language, part, ranks, _, _, micros, _ in results:
            name, _, size = part.partition("-")
            if name == kind and size != "read":
                # Chunks of three sizes; of all there would be too many lines.
                if not size or size in ("16", "2048", "1048576") and language == "c":
                    lines.setdefault(f"{size} B" if size else language, []).append((ranks, micros))
        if lines:
            plot(f"{kind}: time of a request", lines, limit * 1000, os.path.join(folder, f"{kind}.svg"))
