"""What came out, as Markdown with the whole of it as JSON at the end."""

import json


def read_lines(path):
    """The lines of JSON that a program wrote; none when it wrote no file. A last line that was cut
    off is left out."""
    if not path.exists():
        return []
    entries = []
    for line in path.read_text().splitlines():
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return entries


def steps_table(steps):
    lines = ["| step | | seconds | |", "|---|---|---|---|"]
    for step in steps:
        lines.append(f"| {step['name']} | {step['result']} | {step['seconds']:.1f} | "
                     f"{step.get('detail', '')} |")
    return lines


def checks_table(checks):
    """A line for each suite: how many, and the largest share of its tolerance."""
    lines = ["| suite | checks | failed | worst error / tolerance |", "|---|---|---|---|"]
    for suite in dict.fromkeys(check["suite"] for check in checks):
        own = [check for check in checks if check["suite"] == suite]
        failed = sum(not check["ok"] for check in own)
        shares = [check["error"] / check["tolerance"] for check in own if "error" in check]
        worst = f"{max(shares):.2f}" if shares else ""
        lines.append(f"| {suite} | {len(own)} | {failed} | {worst} |")
    for check in checks:
        if not check["ok"]:
            lines.append(f"| {check['suite']} | {check['name']} | FAILED | "
                         f"{check.get('detail', check.get('error', ''))} |")
    return lines


def bench_table(rows):
    lines = ["| work | time, us | rate | of the ceiling | target |", "|---|---|---|---|---|"]
    for row in rows:
        if "left_out" in row:
            lines.append(f"| {row['left_out']} | left out: no time | | | |")
        elif "name" in row:
            target = row.get("target", "")
            if target and not row["met"]:
                target += ": missed"
            share = f"{100 * row['share']:.0f} %" if "share" in row else ""
            lines.append(f"| {row['name']} | {row['us']:.1f} | {row['value']:.3g} {row['unit']} | "
                         f"{share} | {target} |")
    return lines


def markdown(results):
    card = results["card"]
    parts = [[f"# attnd's kernels on {card['name']} (sm_{card['architecture']})"],
             steps_table(results["steps"]), checks_table(results["checks"])]
    if results["bench"]:
        parts.append(["Ceilings are what the card reached in this run: a copy of 2 GiB, read and "
                      "written, and a bf16 product of cuBLAS."] + [""] +
                     bench_table(results["bench"] + results["peers"]))
    parts.append(["```json", json.dumps(results, indent=1), "```"])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def all_well(results):
    """Whether every check that ran held, and the kernels' checks ran to their end. Targets of the
    benchmark are no part of it."""
    done = {step["name"]: step["result"] for step in results["steps"]}
    return (bool(results["checks"]) and all(check["ok"] for check in results["checks"])
            and all(done.get(name) == "passed" for name in ("build", "kernels", "layers"))
            and not any(result == "FAILED" for result in done.values()))
