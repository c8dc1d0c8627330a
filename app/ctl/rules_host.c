/* SPDX-License-Identifier: BSD-3-Clause */
/* Rules about requests, workers, lcores, ports and the host. */
#include "rules_pvt.h"

#include <math.h>
#include <string.h>

#include "sample.h"

/* ---- requests ---- */

#define NEW_ROUTER_MS 5000 /* agents register again within this time after a restart */

/* Count the workers of the pool in one sample: those in @state, or all when it is NULL.
 * @return -1: unknown. */
static int count_workers(const struct doctor_input *in, const json_t *sample, const char *state)
{
	const json_t *workers = sample_get(sample, "workers", "workers", NULL);
	const char *id;
	json_t *w;
	int n = 0;

	if (!json_is_object(workers))
		return -1;
	json_object_foreach ((json_t *)(uintptr_t)workers, id, w) {
		const char *pool = json_string_value(json_object_get(w, "pool"));
		const char *is = json_string_value(json_object_get(w, "state"));

		n += pool != NULL && is != NULL && strcmp(pool, in->name) == 0 &&
		     (state == NULL || strcmp(is, state) == 0);
	}
	return n;
}

/* rule_prefill_off() reports a prefill pool without workers. A gateway without a worker sends no
 * request, so an empty pool is a finding with or without requests. */
bool rule_empty_pool(const struct doctor_input *in)
{
	const double routes = doctor_get_growth(in, "requests.routes");
	const int drain =
		count_workers(in, in->is, "draining") + count_workers(in, in->is, "drained");
	const char *prefill = json_string_value(json_object_get(in->now, "prefill"));

	if (count_workers(in, in->is, "serving") > 0)
		return false;
	if (routes > 0 && drain > 0)
		return doctor_report(
			in,
			"pool %s: %.0f %s arrived, but no worker serves the pool; draining or drained: %d (kvroute-ctl resume WORKER)",
			in->name, routes, doctor_pick_word(routes, "request", "requests"), drain);
	if (routes > 0)
		return doctor_report(in, "pool %s: %.0f %s arrived, but no worker serves the pool",
				     in->name, routes,
				     doctor_pick_word(routes, "request", "requests"));
	return count_workers(in, in->is, NULL) == 0 && count_workers(in, in->was, NULL) == 0 &&
	       (prefill == NULL || strcmp(prefill, "inactive") != 0) &&
	       sample_to_number(sample_get(in->is, "info", "uptime_ms", NULL)) >= NEW_ROUTER_MS &&
	       doctor_report(in, "pool %s has no worker: no kvroute-agent --pool %s is attached",
			     in->name, in->name);
}

/* The request of a released booking continues. */
bool rule_released(const struct doctor_input *in)
{
	const double n = doctor_get_growth(in, "requests.released");

	return n > 0 &&
	       doctor_report(
		       in,
		       "pool %s: the load of %.0f %s was released: not reported by the agent within active_request_expiry_secs",
		       in->name, n, doctor_pick_word(n, "request", "requests"));
}

/* The others of the expired bookings ended with their request. */
bool rule_expired(const struct doctor_input *in)
{
	const double n = doctor_get_growth(in, "requests.expired") -
			 doctor_get_growth(in, "requests.released");

	return n > 0 && doctor_report(in, "pool %s: %.0f %s ended because the client was silent",
				      in->name, n, doctor_pick_word(n, "request", "requests"));
}

bool rule_queue_stuck(const struct doctor_input *in)
{
	const double waiting = doctor_get_number(in, "requests.waiting");
	const double before = sample_to_number(sample_get(in->before, "requests", "waiting", NULL));

	return before > 0 && waiting >= before && doctor_get_growth(in, "requests.admitted") == 0 &&
	       in->seconds >= 1 &&
	       doctor_report(in, "pool %s: %.0f %s, and none was admitted for %.0f s", in->name,
			     waiting, doctor_pick_word(waiting, "request waits", "requests wait"),
			     in->seconds);
}

bool rule_slots_full(const struct doctor_input *in)
{
	const double all = doctor_get_number(in, "slots");
	const double used =
		doctor_get_number(in, "slots_used") - doctor_get_number(in, "slots_lingering");

	return all > 0 && used > 0.9 * all &&
	       doctor_report(in, "pool %s: %.0f of %.0f request slots are used", in->name, used,
			     all);
}

bool rule_frames_full(const struct doctor_input *in)
{
	const double most = doctor_get_number(in, "frames_held_max"),
		     held = doctor_get_number(in, "frames_held");

	return most > 0 && held > 0.9 * most &&
	       doctor_report(in,
			     "pool %s: waiting requests hold %.0f of at most %.0f packet buffers",
			     in->name, held, most);
}

bool rule_prefill_off(const struct doctor_input *in)
{
	const char *state = json_string_value(json_object_get(in->now, "prefill"));

	return state != NULL && strcmp(state, "inactive") == 0 &&
	       doctor_report(in, "prefill pool %s is inactive", in->name);
}

/* ---- workers ---- */

/* Heartbeats arrive, so the rank looks idle and attracts requests, but its agent does not
 * acknowledge them. */
bool rule_unacknowledged(const struct doctor_input *in)
{
	const double n = doctor_get_growth(in, "unacknowledged"),
		     routed = doctor_get_growth(in, "routed");
	const char *why = json_string_value(json_object_get(in->now, "why"));

	return n > 0 && 2 * n >= routed && why != NULL && strcmp(why, "suspect") != 0 &&
	       doctor_report(
		       in,
		       "pool %s: rank %s sends heartbeats, but did not acknowledge %.0f %s to other ranks",
		       in->pool, in->name, n,
		       doctor_pick_word(n, "request, rerouted", "requests, rerouted"));
}

#define FAIL_MOST  4   /* failures without a finding */
#define FAIL_SHARE 0.1 /* of the requests that ended at the rank */

/* Without unacknowledged requests, which have their own rule. */
bool rule_requests_fail(const struct doctor_input *in)
{
	const char *avoided = json_string_value(json_object_get(in->now, "avoided"));
	const char *why = json_string_value(json_object_get(in->now, "why"));
	const double failed =
		doctor_get_growth(in, "failed") - doctor_get_growth(in, "unacknowledged");
	const double all = failed + doctor_get_growth(in, "finished");

	if (avoided != NULL && why != NULL && strcmp(why, "failing") == 0)
		return doctor_report(in, "pool %s: rank %s is avoided: %s", in->pool, in->name,
				     avoided);
	return failed > FAIL_MOST && failed > FAIL_SHARE * all &&
	       doctor_report(in, "pool %s: %.0f of %.0f requests failed at rank %s", in->pool,
			     failed, all, in->name);
}

/* The counter gives the number, the first sample the missing worker. */
bool rule_worker_lost(const struct doctor_input *in)
{
	const json_t *was = sample_get(in->was, "workers", "workers", NULL);
	const json_t *is = sample_get(in->is, "workers", "workers", NULL);
	const double lost = sample_to_number(sample_get(in->is, "workers", "lost", NULL)) -
			    sample_to_number(sample_get(in->was, "workers", "lost", NULL));
	const char *id, *first = "";
	json_t *w;

	if (sample_get(in->was, "workers", "lost", NULL) == NULL || lost <= 0)
		return false;
	json_object_foreach ((json_t *)(uintptr_t)was, id, w)
		if (json_object_get(is, id) == NULL && *first == '\0')
			first = id;
	return doctor_report(in, "%.0f worker%s lost in %.0f s without a drain%s%s", lost,
			     lost > 1 ? "s were" : " was", in->seconds,
			     *first != '\0' ? "; still missing: worker " : "", first);
}

static const char *get_state(const struct doctor_input *in)
{
	const char *s = json_string_value(json_object_get(in->now, "state"));

	return s != NULL ? s : "";
}

bool rule_suspect(const struct doctor_input *in)
{
	return strcmp(get_state(in), "suspect") == 0 &&
	       doctor_report(
		       in, "worker %s has sent no heartbeat for %.0f ms, and gets no new requests",
		       in->name, doctor_get_number(in, "silent_ms"));
}

/* A rejected agent tries again every 10 s. */
#define RETRY_MS 12000

/* The object is the newest rejection of the worker's HELLO. */
bool rule_refused(const struct doctor_input *in)
{
	const char *code = json_string_value(json_object_get(in->now, "code"));
	const char *text = json_string_value(json_object_get(in->now, "text"));
	const double age = doctor_get_number(in, "age_ms");
	const char *other = json_string_value(
		sample_get(in->is, "workers", "workers", in->name, "address", NULL));
	char twin[128] = "";

	if (code != NULL && strcmp(code, "WorkerAlive") == 0)
		snprintf(twin, sizeof(twin), "; this number is also used by %s",
			 other != NULL ? other : "an agent that has left");
	return code != NULL && (age < RETRY_MS || age < in->seconds * 1000) &&
	       doctor_report(in, "worker %s at %s is rejected (%s)%s%s%s", in->name,
			     json_string_value(json_object_get(in->now, "address")), code,
			     text != NULL && *text != '\0' ? ": " : "", text != NULL ? text : "",
			     twin);
}

/* ---- lcores, ports and the host ---- */

#define STALL_MS   20
#define SHARED	   0.05
#define LOW_BUFFER 0.1

bool rule_stall(const struct doctor_input *in)
{
	const double hz = sample_to_number(sample_get(in->is, "stages", "tsc_hz", NULL));
	const double was = sample_to_number(json_object_get(in->before, "max_turn_cycles"));
	const double now = doctor_get_number(in, "max_turn_cycles");

	return hz > 0 && in->before != NULL && now > was && now / hz * 1000 > STALL_MS &&
	       doctor_report(in, "%s (CPU %.0f) stalled for %.0f ms", in->name,
			     doctor_get_number(in, "cpu"), now / hz * 1000);
}

/* Write ", shared by N polling lcores" if the CPU of thread @name has several, else "". */
static const char *describe_sharing(const struct doctor_input *in, const char *name, char *out,
				    size_t len)
{
	const json_t *all = sample_get(in->is, "stages", NULL), *one;
	unsigned int eal_id, n = 0;
	const char *lcore;
	char mine[32];
	double cpu;

	*out = '\0';
	/* Names of DPDK 22.11 and of later versions. */
	if (sscanf(name, "rte-worker-%u", &eal_id) != 1 &&
	    sscanf(name, "dpdk-worker%u", &eal_id) != 1)
		return out;
	/* lcore 0 of EAL is the control thread. */
	snprintf(mine, sizeof(mine), "lcore%u", eal_id - 1);
	one = json_object_get(all, mine);
	cpu = sample_to_number(json_object_get(one, "cpu"));
	json_object_foreach ((json_t *)(uintptr_t)all, lcore, one)
		n += json_is_object(one) && sample_to_number(json_object_get(one, "cpu")) == cpu;
	if (json_object_get(all, mine) != NULL && n > 1)
		snprintf(out, len, ", shared by %u polling lcores", n);
	return out;
}

bool rule_cpu_shared(const struct doctor_input *in)
{
	const double ms = doctor_get_growth(in, "wait_ms");
	const char *name = json_string_value(json_object_get(in->now, "name"));
	char others[40];

	name = name != NULL ? name : "";
	return in->seconds > 0 && ms > SHARED * in->seconds * 1000 && ms > 50 &&
	       doctor_report(in, "thread %s (%s) waited %.0f of %.0f ms for its CPU%s", in->name,
			     name, ms, in->seconds * 1000,
			     describe_sharing(in, name, others, sizeof(others)));
}

bool rule_buffers_low(const struct doctor_input *in)
{
	const double all = doctor_get_number(in, "mbufs"),
		     left = doctor_get_number(in, "mbufs_free");

	return all > 0 && left < LOW_BUFFER * all &&
	       doctor_report(in, "port %s: %.0f of %.0f packet buffers are free", in->name, left,
			     all);
}

bool rule_device_loses(const struct doctor_input *in)
{
	const double missed = doctor_get_growth(in, "device.imissed");
	const double none = doctor_get_growth(in, "device.rx_nombuf");
	const double bad = doctor_get_growth(in, "device.ierrors");

	return missed + none + bad > 0 &&
	       doctor_report(
		       in,
		       "port %s: the device lost frames: %.0f queue full, %.0f no buffer, %.0f errors",
		       in->name, missed, none, bad);
}

bool rule_link_down(const struct doctor_input *in)
{
	return json_object_get(in->now, "link_up") != NULL &&
	       doctor_get_number(in, "link_up") == 0 &&
	       doctor_report(in, "port %s has no link", in->name);
}

bool rule_xdp_off(const struct doctor_input *in)
{
	const char *on = json_string_value(json_object_get(in->now, "redirect"));

	return on != NULL && strcmp(on, "off") == 0 &&
	       doctor_report(
		       in,
		       "port %s receives nothing: its XDP program passes every frame to the kernel",
		       in->name);
}

bool rule_xdp_no_socket(const struct doctor_input *in)
{
	const double n = doctor_get_growth(in, "no_socket");

	return n > 0 &&
	       doctor_report(in, "port %s: %.0f frames arrived on queues that no lcore polls",
			     in->name, n);
}

/* Packet buffers, request slots and held frames have their own rules. */
bool rule_memory_low(const struct doctor_input *in)
{
	const double size = doctor_get_number(in, "size"), used = doctor_get_number(in, "used");

	return size > 0 && used > 0.9 * size && strncmp(in->name, "mbufs_", 6) != 0 &&
	       strncmp(in->name, "slots_", 6) != 0 && strncmp(in->name, "frames_", 7) != 0 &&
	       doctor_report(in, "%s: %.0f of %.0f are used", in->name, used, size);
}

/* ---- router ---- */

#define MANY_DROPS 5

/* Expected drops: frames for other hosts of a shared network, and late frames. */
static bool is_noise(const char *name)
{
	static const char *const noise[] = {"_rx_other_mac", "_rx_other_addr", "_rx_other_port",
					    "_rx_other_proto", "_rx_other_vlan",
					    "ingress_unknown_request", "ingress_premature_ack",
					    /* lines, not frames; see rule_log_lost() */
					    "log_buffer_full", "log_rate_limited",
					    /* requests that have just ended */
					    "reject_unknown_request", "reject_ended"};
	const size_t len = strlen(name);

	for (size_t i = 0; i < sizeof(noise) / sizeof(noise[0]); i++)
		if (len >= strlen(noise[i]) && strcmp(name + len - strlen(noise[i]), noise[i]) == 0)
			return true;
	return false;
}

bool rule_drops(const struct doctor_input *in)
{
	const json_t *is = sample_get(in->now, "drops", NULL),
		     *was = sample_get(in->before, "drops", NULL);
	double most = 0, n = 0;
	const char *name, *worst = NULL;
	json_t *v;

	json_object_foreach ((json_t *)(uintptr_t)is, name, v) {
		const double by =
			sample_to_number(v) - sample_to_number(json_object_get(was, name));

		if (is_noise(name))
			continue;
		n += by > 0 ? by : 0;
		if (by > most) {
			most = by;
			worst = name;
		}
	}
	return worst != NULL && was != NULL && most >= MANY_DROPS &&
	       doctor_report(
		       in,
		       "%.0f frames or requests were rejected or dropped in %.0f s, mostly %s (%.0f)",
		       n, in->seconds, worst, most);
}

#define LATE_FRAMES 3 /* frames of the old epoch may be in flight when a new one begins */

bool rule_stale_epoch(const struct doctor_input *in)
{
	const double n = doctor_get_growth(in, "ingress.stale_epoch");

	return n > LATE_FRAMES &&
	       doctor_report(
		       in,
		       "%.0f heartbeats or KV_EVENTS frames carry an earlier epoch of their worker",
		       n);
}

bool rule_unknown_rank(const struct doctor_input *in)
{
	const double n = doctor_get_growth(in, "ingress.unknown_rank");

	return n > 0 &&
	       doctor_report(in, "%.0f %s of KV events %s a rank that the agent did not register",
			     n, doctor_pick_word(n, "heartbeat or frame", "heartbeats or frames"),
			     doctor_pick_word(n, "has", "have"));
}

bool rule_unbalanced(const struct doctor_input *in)
{
	const char *is = json_string_value(sample_get(in->now, "balance", "balance", NULL));
	const char *was = json_string_value(sample_get(in->before, "balance", "balance", NULL));

	return is != NULL && was != NULL && strcmp(is, "violated") == 0 &&
	       strcmp(was, "violated") == 0 &&
	       doctor_report(in, "the counters contradict each other: %s",
			     json_string_value(sample_get(in->now, "balance", "violation", NULL)));
}

/* The router read its clock between the start of the sample and this time. */
static double get_answer_time(const json_t *sample)
{
	return sample_to_number(json_object_get(sample, "info_at"));
}

#define CLOCK_MS 1000 /* tolerance, in addition to 5 % */

bool rule_clock_off(const struct doctor_input *in)
{
	const double ms = doctor_get_growth(in, "info.uptime_ms"), real = in->seconds * 1000;
	const double least =
		(sample_to_number(json_object_get(in->is, "at")) - get_answer_time(in->was)) * 1000;
	const double most =
		(get_answer_time(in->is) - sample_to_number(json_object_get(in->was, "at"))) * 1000;

	return in->seconds >= 1 && sample_get(in->before, "info", NULL) != NULL &&
	       doctor_get_number(in, "info.epoch") ==
		       sample_to_number(sample_get(in->before, "info", "epoch", NULL)) &&
	       (ms > 1.05 * most + CLOCK_MS || ms < 0.95 * least - CLOCK_MS) &&
	       doctor_report(in, "the router's clock advanced by %.0f ms in %.0f ms", ms, real);
}

bool rule_log_lost(const struct doctor_input *in)
{
	const double n = doctor_get_growth(in, "log.buffer_full");

	return n > 0 &&
	       doctor_report(in, "%.0f log %s %s dropped: standard error is not read fast enough",
			     n, doctor_pick_word(n, "line", "lines"),
			     doctor_pick_word(n, "was", "were"));
}
