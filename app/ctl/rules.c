/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What doctor knows. A sentence names the thing and the numbers; a remedy tells what to do. Bounds
 * are far from what a healthy router shows: a finding is worth a look, always.
 */
#include "rules_pvt.h"

#include <stddef.h>

const struct doctor_rule doctor_rules[] = {
	{"no-events", "pools", rule_no_events,
	 "start the engines with --kv-events-config, which their agents then find (kvroute-agent "
	 "logs what it lacks), or set use_kv_events = false",
	 DOCTOR_POOL},
	{"event-gap", "pools", rule_event_gap,
	 "agents repair it by themselves; when it comes again, look for losses between engine and "
	 "agent and give the agent --replay",
	 DOCTOR_POOL},
	{"event-life", "ingress", rule_event_life,
	 "look whether two agents speak for one worker, or an engine restarts again and again",
	 DOCTOR_ROUTER},
	{"event-regression", "pools", rule_event_back,
	 "restart the agent, so that its events begin with a new life", DOCTOR_POOL},
	{"event-unread", "events", rule_unread_events,
	 "the agent's standard error has one of them; SIGUSR1 makes it count them by kind: an "
	 "engine that is newer than the agent, or something else on its port",
	 DOCTOR_RANK},
	{"event-block-size", "events, pools", rule_event_block_size,
	 "start the engine with the pool's block size, or give the pool block_size, and the agent "
	 "--block-size, of the engine's",
	 DOCTOR_RANK},
	{"event-eagle", "events, pools", rule_event_eagle,
	 "give the pool eagle = true when its engines draft with EAGLE, and eagle = false when "
	 "they "
	 "do not; all engines of a pool are alike",
	 DOCTOR_RANK},
	{"canary-mismatch", "workers, events", rule_canary,
	 "compare what names blocks: the pool's block_size and eagle with the engine's settings, "
	 "a salt or adapter that its prompts get by default, and whether its /tokenize has the "
	 "tokenizer and chat template of its completions; the agent's standard error has more",
	 DOCTOR_WORKER},
	{"rank-range", "ingress", rule_bad_rank,
	 "give the agent the engine's --ranks and --first-rank; capture shows who it is",
	 DOCTOR_ROUTER},
	{"orphan-blocks", "pools", rule_orphans,
	 "give the agents --replay, or restart the engine's agent so that it starts with a clean "
	 "cache",
	 DOCTOR_POOL},
	{"phantom-removals", "pools", rule_unknown_removes,
	 "look whether block_size and hash settings of engine and pool are the same", DOCTOR_POOL},
	{"no-blocks", "pools", rule_no_blocks,
	 "send hashes or tokens with every ROUTE; prompts shorter than a block are routed by load "
	 "alone",
	 DOCTOR_POOL},
	{"no-actual", "hits, pools", rule_no_actual,
	 "let the engines report cached tokens (vLLM --enable-prompt-tokens-details, SGLang "
	 "--enable-cache-report); a stream has them only when its client asks for usage, or with "
	 "vLLM's --enable-force-include-usage",
	 DOCTOR_POOL},
	{"overprediction", "pools", rule_overpredicts,
	 "look whether engines evict blocks before the requests arrive, and whether their events "
	 "are late",
	 DOCTOR_POOL},
	{"no-rank-events", "loads, events", rule_silent_rank,
	 "start this engine with --kv-events-config; the log of its agent names the endpoint that "
	 "it listens to, or the flag that is missing",
	 DOCTOR_RANK},
	{"not-authoritative", "events", rule_not_authoritative,
	 "look whether the agent can send the missing events or a dump: --replay", DOCTOR_RANK},
	{"event-lag", "events", rule_lags,
	 "look for losses between agent and router, and whether the event lcore keeps up",
	 DOCTOR_RANK},
	{"useless-cache", "loads, events", rule_useless_cache,
	 "look whether hashes of the requests and of this engine's events have the same salt, "
	 "adapter "
	 "and block size",
	 DOCTOR_RANK},
	{"unused", "loads, pools", rule_unused, "kvroute-ctl why WORKER tells what others have",
	 DOCTOR_RANK},
	{"unheard", "loads", rule_unheard,
	 "drain it (kvroute-ctl drain WORKER), look at its agent, and whether frames from router "
	 "to "
	 "agent get lost; those from agent to router arrive",
	 DOCTOR_RANK},
	{"batch-unknown", "pools, loads", rule_batch_unknown,
	 "give its agent --max-num-batched-tokens, or let the engine report it: vLLM with "
	 "VLLM_SERVER_DEV_MODE=1, SGLang in /server_info",
	 DOCTOR_RANK},
	{"requests-fail", "loads", rule_requests_fail,
	 "look at the log of its agent, which has the engine's reason, and at the engine",
	 DOCTOR_RANK},
	{"worker-lost", "workers", rule_worker_lost,
	 "look at the log of its agent and at its engine; it comes back by itself when both are "
	 "well (one that is to stop: kvroute-ctl drain, or SIGTERM to its agent)",
	 DOCTOR_ROUTER},
	{"other-hashes", "hits", rule_other_hashes,
	 "look for salt, LoRA or pictures that requests have and KV events have not, or the "
	 "reverse",
	 DOCTOR_POOL},
	{"memory-low", "buffers", rule_memory_low,
	 "raise memory_mb, or the key that the name stands for", DOCTOR_BUFFER},
	{"far-from-best", "hits", rule_far_from_best,
	 "raise overlap_score_credit, or give busy ranks more room: load outweighs what is cached",
	 DOCTOR_POOL},
	{"empty-pool", "workers, pools", rule_empty_pool,
	 "beside each engine of the pool run kvroute-agent --engine URL --router HOST --pool POOL, "
	 "or see why its HELLO is refused (kvroute-ctl refused)",
	 DOCTOR_POOL},
	{"expired", "pools", rule_expired,
	 "released: look whether the agent still runs them (kvroute-ctl oldest POOL), as it "
	 "reports "
	 "what it runs every 30 s; in flight until then: look why callers of /pick stop renewing",
	 DOCTOR_POOL},
	{"request-unknown", "oldest, events", rule_request_unknown,
	 "cancel it at its client; when it comes again, look why the engine forgets requests: its "
	 "log, and whether it was restarted behind its agent",
	 DOCTOR_POOL},
	{"request-stands", "oldest", rule_request_stands,
	 "look at its engine; kvroute-ctl oldest POOL names the others, explain ID tells why it is "
	 "there",
	 DOCTOR_POOL},
	{"queue-stands", "pools", rule_queue_stands,
	 "look at the engines: what they have does not end; or raise router_queue_threshold",
	 DOCTOR_POOL},
	{"slots-full", "pools", rule_slots_full, "raise max_requests of the pool", DOCTOR_POOL},
	{"buffers-held", "pools", rule_frames_full,
	 "raise memory_mb or waiting_frames, or lower what may wait", DOCTOR_POOL},
	{"prefill-inactive", "pools", rule_prefill_off,
	 "start prefill workers, or kvroute-ctl reactivate POOL", DOCTOR_POOL},
	{"table-full", "pools", rule_table_full, "raise max_blocks and memory_mb", DOCTOR_POOL},
	{"drain-stuck", "workers, oldest", rule_drain_stuck,
	 "wait, cancel these requests at their clients, or stop the engine: they end with "
	 "WorkerLost",
	 DOCTOR_WORKER},
	{"suspect", "workers", rule_suspect,
	 "look at the agent and at the network between: its heartbeats do not arrive",
	 DOCTOR_WORKER},
	{"refused", "refused, workers", rule_refused,
	 "correct what the sentence names at the engine or its agent, or in the pool",
	 DOCTOR_REFUSED},
	{"stall", "stages", rule_stall,
	 "isolate the CPU (drivers-cfg/host/isolate.sh), and look whether the host takes it away",
	 DOCTOR_LCORE},
	{"cpu-shared", "/proc/PID/task", rule_cpu_shared,
	 "give the polling CPUs to kvroute alone (drivers-cfg/host/isolate.sh), and each lcore one "
	 "of "
	 "its own ([router] ingress, scheduler_cpu, event_cpu)",
	 DOCTOR_THREAD},
	{"buffers-low", "ports", rule_buffers_low, "raise memory_mb or mbufs of the port",
	 DOCTOR_PORT},
	{"device-loses", "ports", rule_device_loses,
	 "give the router more ingress CPUs, or the port longer queues", DOCTOR_PORT},
	{"xdp-off", "xdp", rule_xdp_off, "kvroute-ctl redirect PORT on", DOCTOR_XDP},
	{"xdp-no-socket", "xdp", rule_xdp_no_socket,
	 "give the interface as many queues as queue_count says (drivers-cfg/host/afxdp.sh)",
	 DOCTOR_XDP},
	{"link-down", "ports", rule_link_down, "look at cable, switch port and peer", DOCTOR_PORT},
	{"drops", "drops", rule_drops,
	 "kvroute-ctl drops names all reasons, kvroute(8) what each means", DOCTOR_ROUTER},
	{"unbalanced", "balance", rule_unbalanced,
	 "a fault of the router: report it with this line", DOCTOR_ROUTER},
	{"clock", "info", rule_clock_off,
	 "look at the TSC of this machine: dmesg tells whether it is unstable", DOCTOR_ROUTER},
	{"log-lost", "log", rule_log_lost, "read standard error, or let the journal do it",
	 DOCTOR_ROUTER},
	{NULL, NULL, NULL, NULL, DOCTOR_SCOPES},
};
