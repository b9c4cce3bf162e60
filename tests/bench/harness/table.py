"""The table that people read."""

COLUMNS = [("name", "row"), ("measured", "measured"), ("ceiling", "ceiling"), ("share", "share"),
           ("budget", "budget"), ("verdict", "verdict")]  # fmt: skip


def text(machine, results):
    head = f"{machine['cpu']}, {machine['cores']} cores, {machine['isa']}"
    cells = [[title for _, title in COLUMNS]]
    cells += [[str(result.get(key, "")) for key, _ in COLUMNS] for result in results]
    widths = [max(len(row[i]) for row in cells) for i in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]
    lines.insert(1, "-" * len(lines[0]))
    notes = [f"{result['name']}: {result['note']}" for result in results if result.get("note")]
    return "\n".join([head, "", *lines, "", *notes]).rstrip()
