#!/usr/bin/env python3
"""check_schema.py REPORTS_TOOL FIXTURES SCHEMA: compare.json against docs/compare.schema.json.

Oracle: the JSON Schema validator of python3-jsonschema, an implementation that is none of ours.
Whole runs, damaged ones and runs without a manifest must all give a valid file; each change that
would break a reader must give an invalid one. Exit code 77: there is no validator here.
"""
import copy
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("SKIP: python3-jsonschema is not installed (scripts/deps test)")
    sys.exit(77)

tool, fixtures, schema_path = sys.argv[1:]
schema = json.loads(pathlib.Path(schema_path).read_text())
validator = jsonschema.Draft7Validator(schema)
validator.check_schema(schema)


def made_by(damage):
    with tempfile.TemporaryDirectory() as folder:
        comparison = pathlib.Path(folder, "tiny")
        shutil.copytree(pathlib.Path(fixtures, "tiny"), comparison)
        damage(comparison)
        subprocess.run([tool, "report", comparison], check=True,
                       stdout=subprocess.DEVNULL)
        return json.loads(pathlib.Path(comparison, "compare.json").read_text())


def cut(name, share):
    def damage(comparison):
        for run in comparison.glob("*/*"):
            path = run / name
            if path.exists():
                text = path.read_bytes()
                path.write_bytes(text[: int(len(text) * share)])
    return damage


def drop(name):
    def damage(comparison):
        (comparison / "wal/1" / name).unlink()
    return damage


whole = made_by(lambda comparison: None)
damages = {"nothing": lambda comparison: None, "no manifest": drop("manifest.json"),
           "no ledger": drop("ledger.tsv"), "no events": drop("sampler.jsonl"),
           "no main.tsv": drop("main.tsv"), "half a ledger": cut("ledger.tsv", 0.5),
           "half the events": cut("sampler.jsonl", 0.5), "half the commits": cut("worker-1.jsonl", 0.3)}
for name, damage in damages.items():
    errors = list(validator.iter_errors(made_by(damage)))
    if errors:
        sys.exit(f"{name}: compare.json is not as its schema says: {errors[0].message} at "
                 f"{list(errors[0].absolute_path)}")


def broken(change):
    other = copy.deepcopy(whole)
    change(other)
    return other


breaks = {
    "another version": lambda c: c.update(schema="sluice-compare/2"),
    "no sinks": lambda c: c.update(sinks=[]),
    "a key that is gone": lambda c: c["runs"][0].pop("reasons"),
    "a run that counts, with a reason": lambda c: c["runs"][0]["reasons"].append("x"),
    "a run that does not, without": lambda c: c["runs"][0].update(counts=False),
    "a figure in words": lambda c: c["runs"][0]["figures"].update({"sla.p99_ms": "12"}),
    "a spread without its n": lambda c: c["sinks"][0]["figures"]["sla.p99_ms"].pop("n"),
    "a spread of no run": lambda c: c["sinks"][0]["figures"]["sla.p99_ms"].update(n=0),
    "a figure without a name": lambda c: c["runs"][0]["figures"].update({"p99": 1}),
    "an unknown verdict": lambda c: c["runs"][0]["audit"].update(verdict="fine"),
    "a negative count": lambda c: c["runs"][0]["audit"].update(lost=-1),
}
for name, change in breaks.items():
    if validator.is_valid(broken(change)):
        sys.exit(f"{name}: the schema takes it")
print(f"{len(damages)} files are valid, {len(breaks)} broken ones are not")
