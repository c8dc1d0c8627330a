#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""kvroute-ctl against a scripted telemetry server: its commands, output and exit status.

usage: ctl_test.py KVROUTE_CTL

The server uses the protocol of DPDK: SOCK_SEQPACKET, a greeting, a JSON object per command. kvroute-ctl searches no other folder.
"""
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading

CTL = sys.argv[1]
WORKERS = {str(i): {"state": "serving", "pool": "m", "bookings": i, "silent_ms": 5, "state_ms": 100, "address": f"10.0.0.{i}:9",
                    "dp_start": 0, "dp_size": 1, "epoch": 1, "total_kv_blocks": 0} for i in range(1, 71)}
POOL = {"name": "m", "block_size": 16, "slots": 100, "slots_used": 3, "slots_lingering": 1, "frames_held": 0,
        "frames_held_max": 50, "requests": {"routes": 1000, "finished": 900, "rejected": 0, "waiting": 2, "admitted": 5, "live": 3,
                                            "predicted_cached": 5000, "actual_cached": 4900},
        "events": {"frames": 10, "gaps": 0}, "prefix": {"blocks": 300, "used_bytes": 1, "memory_bytes": 100}}
DECISION = {"age_ms": 1500, "source": 2 ** 64 - 1, "id": 4660, "result": "routed", "worker": 3, "dp_rank": 0, "cost": "1.250",
            "required_blocks": 12, "overlap_blocks": "8.000", "waited_us": 40, "pinned": 0, "policy_class": "default"}
TERMS = {"0": {"worker": 3, "dp_rank": 0, "cost": "1.250", "device": 8, "host": 0, "disk": 0, "shared": 0, "prefill_tokens": 64},
         "1": {"worker": 5, "dp_rank": 0, "cost": "9.000", "device": 0, "host": 0, "disk": 0, "shared": 0, "prefill_tokens": 900}}


class Router:
    """Answers the commands of its table, others with null. Records the commands."""

    def __init__(self, base, prefix):
        folder = f"{base}/dpdk/{prefix}"
        os.makedirs(folder)
        self.asked, self.path, self.gaps = [], f"{folder}/dpdk_telemetry.v2", 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(self.path)
        self.socket.listen(10)
        self.hang_up = self.broken = False
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(peer,), daemon=True).start()

    def talk(self, peer):
        with peer:
            if self.hang_up:
                return
            peer.send(json.dumps({"version": "DPDK 22.11", "pid": 1, "max_output_len": 16384}).encode())
            while question := peer.recv(1024):
                question = question.decode()
                self.asked.append(question)
                command, _, rest = question.partition(",")
                answer = b'{"/kvroute/' if self.broken else self.answer(command, rest)
                raw = answer if isinstance(answer, bytes) else json.dumps({command: answer}).encode()
                peer.send(raw)

    def answer(self, command, rest):
        name = command.removeprefix("/kvroute/")
        if command == "/":
            return ["/"] + [f"/kvroute/{n}" for n in ("info", "workers", "pools", "decisions", "drain", "counters", "stages", "drops",
                                                     "balance", "metrics", "adapters")]
        if name == "info":
            return {"version": "1.2.3", "uptime_ms": 93784000, "workers": len(WORKERS)}
        if name == "workers":
            first = int(rest or 0)
            ids = list(WORKERS)[first:first + 32]
            return {"total": len(WORKERS), **({"next": first + 32} if first + 32 < len(WORKERS) else {}),
                    "workers": {i: WORKERS[i] for i in ids}}
        if name == "pools":
            self.gaps += 2  # two more frames per sample
            return {"total": 1, "pools": {"m": {**POOL, "events": {"frames": 10 + self.gaps, "gaps": self.gaps}}}}
        if name == "decisions":
            pool, _, number = rest.partition(",")
            if pool != "m" or (number and number != "41"):
                return {"error": "ENOENT", "message": "no such pool" if pool != "m" else f"decision {number} is not kept"}
            return {**DECISION, "ranks": 2, "terms": TERMS} if number else {"sample": 1, "kept": 42, "decisions": {"41": DECISION}}
        if name == "drain":
            return ({"id": int(rest), "state": "draining"} if rest in WORKERS else
                    {"error": "ENOENT", "message": f"no worker {rest}"})
        if name == "counters":
            return {"booked_at_once": 5} if rest.startswith("sched") else {"sched": ["m"], "log": [""]}
        if name == "stages":
            return {"tsc_hz": 2000000000, "lcore0": {"cpu": 1, "max_turn_cycles": 5,
                                                     "ingress": {"items": 10, "cycles": 1000, "bursts": 2}}}
        if name == "adapters":  # a name that is not UTF-8
            return b'{"/kvroute/adapters": {"total": 1, "adapters": {"0": {"name": ["a\xff"], "active": 1}}}}'
        if name == "metrics":
            lines = ["# TYPE kvr_x gauge", "kvr_x 5", "# EOF"]
            return "".join(line + "\n" for line in lines[int(rest or 0):int(rest or 0) + 2])
        return {"balance": "ok", "violation": ""} if name == "balance" else {} if name == "drops" else None


class Failed(Exception):
    pass


def ctl(base, *args, want=0, user=None):
    """Standard output and error of a run with exit status @want."""
    run = subprocess.run([CTL, *args], capture_output=True, text=True, timeout=60, user=user, stdin=subprocess.DEVNULL,
                         env={**os.environ, "RUNTIME_DIRECTORY": str(base)})
    if run.returncode != want:
        raise Failed(f"{args}: status {run.returncode}, not {want}: {run.stdout}{run.stderr}")
    if want and not run.stderr.strip() and args[0] != "doctor":
        raise Failed(f"{args}: status {want} without a message")
    return run.stdout, run.stderr


def expect(what, text, *parts):
    for part in parts:
        if part not in text:
            raise Failed(f"{what}: {part!r} is not in {text!r}")


def without_router(base):
    expect("no router", ctl(base, "info", want=3)[1], "no router is running")
    expect("no such router", ctl(base, "--router", "x", "info", want=3)[1], "no router x is running")
    os.makedirs(f"{base}/dpdk/dead")  # socket of a killed router
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.bind(f"{base}/dpdk/dead/dpdk_telemetry.v2")
    expect("dead socket", ctl(base, "workers", want=3)[1], "no router is running")
    expect("help", ctl(base, "--help")[0], "drain WORKER", "exit status", "--json")
    expect("version", ctl(base, "--version")[0], "kvroute-ctl ")
    expect("unknown", ctl(base, "nothing", want=2)[1], 'unknown command "nothing"')
    expect("option", ctl(base, "--nothing", want=2)[1], "--nothing")
    expect("arity", ctl(base, "drain", want=2)[1], "usage: kvroute-ctl drain WORKER")
    ctl(base, "info", "more", want=2)
    expect("completion", ctl(base, "completion", "bash")[0], "complete -F", " drain ", "'doctor ")
    ctl(base, "completion", "csh", want=2)


def completion(base):
    """Run the completion script in bash: commands, then workers of the router."""
    script = (f"PATH={os.path.dirname(CTL)}:$PATH; source <(kvroute-ctl completion bash); "
              "COMP_WORDS=(kvroute-ctl dr); COMP_CWORD=1; _kvroute_ctl; echo ${COMPREPLY[@]}; "
              "COMP_WORDS=(kvroute-ctl drain 6); COMP_CWORD=2; _kvroute_ctl; echo ${COMPREPLY[@]}")
    out = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60,
                         env={**os.environ, "RUNTIME_DIRECTORY": base}).stdout.splitlines()
    if out != ["drops drain", "6 60 61 62 63 64 65 66 67 68 69"]:
        raise Failed(f"completion: {out}")


def with_router(base, router):
    out, _ = ctl(base, "workers")
    if len(out.splitlines()) != 71:
        raise Failed(f"workers, three pages: {len(out.splitlines())} lines")
    expect("workers", out, "state", "serving", "10.0.0.70:9")
    answer = json.loads(ctl(base, "workers", "--json")[0])
    if answer["total"] != 70 or len(answer["workers"]) != 70 or "next" in answer:
        raise Failed(f"workers --json: {len(answer['workers'])}")
    expect("drain", ctl(base, "drain", "7")[0], "draining")
    if router.asked[-1] != "/kvroute/drain,7":
        raise Failed(f"asked {router.asked[-1]}")
    expect("unknown worker", ctl(base, "drain", "7000", want=1)[1], "no worker 7000 (ENOENT)")
    if json.loads(ctl(base, "--json", "drain", "7000", want=1)[0])["error"] != "ENOENT":
        raise Failed("an error as JSON")
    expect("unknown command", ctl(base, "sources", want=1)[1], "does not have the command /kvroute/sources")
    expect("long", ctl(base, "drain", "9" * 2000, want=2)[1], "bytes")
    expect("raw", ctl(base, "raw", "/kvroute/drain,7")[0], "draining")
    ctl(base, "raw", "kvroute", want=2)
    expect("no UTF-8", ctl(base, "adapters", "m")[0], "a?")
    expect("metrics", ctl(base, "metrics")[0], "kvr_x 5\n")
    expect("routers", ctl(base, "routers")[0], "one\n")
    expect("explain", ctl(base, "explain", "0x1234")[0], "request 4660 (0x1234) of source 0xffffffffffffffff in pool m", "worker 3 rank 0",
           "overlap: 8.000 of 12 blocks", "9.000")
    expect("explain nothing", ctl(base, "explain", "1", want=1)[1], "decision_sample")
    ctl(base, "explain", "x", want=2)
    expect("why", ctl(base, "why", "5")[0], "worker 5 of pool m: serving", "candidate in 1 and was chosen in 0",
           "cached blocks 0.0, chosen 8.0", "the chosen ranks have more of the prompts cached")
    expect("why the chosen", ctl(base, "why", "3")[0], "candidate in 1 and was chosen in 1")
    WORKERS["6"].update(state="drained", drained_by="operator")
    expect("why it drains", ctl(base, "why", "6")[0], "draining by order of an operator; kvroute-ctl resume 6")
    WORKERS["6"].update(drained_by="agent")
    out, _ = ctl(base, "why", "6")
    expect("why it drains by order of its agent", out, "the agent requested a drain", "SIGUSR2")
    if "resume" in out:
        raise Failed(f"why: names resume although the agent drains: {out}")
    WORKERS["6"].pop("drained_by")
    WORKERS["6"].update(state="serving")
    expect("why an unknown worker", ctl(base, "why", "4000", want=1)[1], "worker 4000 is not registered")
    out, _ = ctl(base, "watch", "decisions", "--count", "2", "--seconds", "0.05")
    if out.count("\n") != 1:
        raise Failed(f"watch: a decision is printed once: {out}")
    expect("watch", out, "m 41  request 0x1234: routed to 3 rank 0")
    ctl(base, "watch", "decisions", "missing", want=1)
    ctl(base, "watch", "birds", want=2)
    expect("top", ctl(base, "top", "--count", "1", "--seconds", "0.05")[0], "up 1d 02:03:04", "70 workers", "####", "ingress", "30 more workers")
    out, _ = ctl(base, "doctor", "--seconds", "0.05", want=1)
    if out.count("\n") != 1:
        raise Failed(f"doctor: {out}")
    expect("doctor", out, "kv-event-gap: pool m: 2 frames of KV events arrived", "The agent sends the missing events again")
    found = json.loads(ctl(base, "doctor", "--seconds", "0.05", "--json", want=1)[0])
    if [f["rule"] for f in found] != ["kv-event-gap"]:
        raise Failed(f"doctor --json: {found}")
    completion(base)


def several(base, router):
    Router(base, "two")
    expect("several", ctl(base, "info", want=5)[1], "one", "two", "--router")
    expect("one of them", ctl(base, "info", "--router", "two")[0], "1.2.3")
    router.broken = True
    expect("no JSON", ctl(base, "info", "--router", "one", want=3)[1], "one")
    router.broken = False
    router.hang_up = True
    expect("connection closed", ctl(base, "--router", "one", "info", want=3)[1], "does not answer")
    if os.geteuid() == 0:
        os.chmod(f"{base}/dpdk", 0o700)
        expect("denied", ctl(base, "info", want=4, user=65534)[1], "permission denied")


def folder_of_another_user():
    """/tmp/dpdk of another user is no evidence of a router. Needs root, with a private /tmp and /run; else skipped."""
    script = """mount -t tmpfs none /run && mount -t tmpfs none /tmp && mkdir -m 700 /tmp/dpdk || exit 77
unset RUNTIME_DIRECTORY XDG_RUNTIME_DIR
for how in "" "--router x"; do setpriv --reuid 65534 --clear-groups "$0" $how info; echo "status $?"; done"""
    run = subprocess.run(["unshare", "--mount", "sh", "-c", script, os.path.realpath(CTL)], capture_output=True, text=True, timeout=60)
    if run.returncode != 0 and "status" not in run.stdout:
        print(f"folder of another user: skipped: {run.stderr.strip()}")
        return
    if run.stdout != "status 3\nstatus 3\n":
        raise Failed(f"the folder of another user: {run.stdout}{run.stderr}")
    expect("its owner", run.stderr, "no router is running", "no router x is running", "/tmp/dpdk is readable by root only")


def standard_output(base):
    """A full disk."""
    with open("/dev/full", "w") as full:
        run = subprocess.run([CTL, "--router", "two", "workers"], stdout=full, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "RUNTIME_DIRECTORY": base})
    if run.returncode != 1 or "standard output" not in run.stderr:
        raise Failed(f"full disk: {run}")


def main():
    with tempfile.TemporaryDirectory(prefix="kvr-ctl.") as base:
        os.chmod(base, 0o755)
        try:
            without_router(base)
            router = Router(base, "one")
            with_router(base, router)
            several(base, router)
            standard_output(base)
            if not os.path.realpath(CTL).startswith("/tmp/"):
                folder_of_another_user()
        except Failed as e:
            print(f"FAILED: {e}")
            sys.exit(1)
    print("ok")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
