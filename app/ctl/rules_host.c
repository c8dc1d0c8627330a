/* SPDX-License-Identifier: BSD-3-Clause */
/* Rules about requests, workers, lcores and what they stand on. */
#include "rules_pvt.h"

#include <math.h>
#include <string.h>

#include "snap.h"

/* ---- requests ---- */

#define NEW_ROUTER_MS 5000 /* its agents say HELLO again within */

/* Of the pool, in a look: those in @state, NULL: all. -1: the router does not tell. */
static int workers_of(const struct doctor_look *l, const json_t *look, const char *state)
{
	const json_t *workers = snap_at(look, "workers", "workers", NULL);
	const char *id;
	json_t *w;
	int n = 0;

	if (!json_is_object(workers))
		return -1;
	json_object_foreach ((json_t *)(uintptr_t)workers, id, w) {
		const char *pool = json_string_value(json_object_get(w, "pool"));
		const char *is = json_string_value(json_object_get(w, "state"));

		n += pool != NULL && is != NULL && strcmp(pool, l->name) == 0 &&
		     (state == NULL || strcmp(is, state) == 0);
	}
	return n;
}

/* A prefill pool without workers is rule_prefill_off()'s. A gateway that knows of no worker asks
 * for nothing, so that it is one whether requests come or not. */
bool rule_empty_pool(const struct doctor_look *l)
{
	const double routes = doctor_grown(l, "requests.routes");
	const int drain = workers_of(l, l->is, "draining") + workers_of(l, l->is, "drained");
	const char *prefill = json_string_value(json_object_get(l->now, "prefill"));

	if (workers_of(l, l->is, "serving") > 0)
		return false;
	if (routes > 0 && drain > 0)
		return doctor_say(l,
				  "pool %s: %.0f %s came, and no worker serves it, %d drain or "
				  "are drained (kvroute-ctl resume)",
				  l->name, routes, doctor_word(routes, "request", "requests"),
				  drain);
	if (routes > 0)
		return doctor_say(l, "pool %s: %.0f %s came, and no worker serves it", l->name,
				  routes, doctor_word(routes, "request", "requests"));
	return workers_of(l, l->is, NULL) == 0 && workers_of(l, l->was, NULL) == 0 &&
	       (prefill == NULL || strcmp(prefill, "inactive") != 0) &&
	       snap_number(snap_at(l->is, "info", "uptime_ms", NULL)) >= NEW_ROUTER_MS &&
	       doctor_say(l, "pool %s has no worker: no kvroute-agent --pool %s is attached",
			  l->name, l->name);
}

/* Two ends of bookings: the request goes on after the first, and has ended with the second. */
bool rule_expired(const struct doctor_look *l)
{
	const double released = doctor_grown(l, "requests.released");
	const double ended = doctor_grown(l, "requests.expired") - released;

	if (released > 0)
		return doctor_say(l,
				  "pool %s: the load of %.0f %s was released, as no agent "
				  "reported %s for active_request_expiry_secs; %s on",
				  l->name, released, doctor_word(released, "request", "requests"),
				  doctor_word(released, "it", "them"),
				  doctor_word(released, "it goes", "they go"));
	return ended > 0 &&
	       doctor_say(l, "pool %s: %.0f %s in flight until the client fell silent", l->name,
			  ended, doctor_word(ended, "request was", "requests were"));
}

bool rule_queue_stands(const struct doctor_look *l)
{
	const double waiting = doctor_now(l, "requests.waiting");
	const double before = snap_number(snap_at(l->before, "requests", "waiting", NULL));

	return before > 0 && waiting >= before && doctor_grown(l, "requests.admitted") == 0 &&
	       l->seconds >= 1 &&
	       doctor_say(l, "pool %s: %.0f %s, and none was let in for %.0f s", l->name, waiting,
			  doctor_word(waiting, "request waits", "requests wait"), l->seconds);
}

bool rule_slots_full(const struct doctor_look *l)
{
	const double all = doctor_now(l, "slots");
	const double used = doctor_now(l, "slots_used") - doctor_now(l, "slots_lingering");

	return all > 0 && used > 0.9 * all &&
	       doctor_say(l, "pool %s: %.0f of %.0f places for requests are taken", l->name, used,
			  all);
}

bool rule_frames_full(const struct doctor_look *l)
{
	const double most = doctor_now(l, "frames_held_max"), held = doctor_now(l, "frames_held");

	return most > 0 && held > 0.9 * most &&
	       doctor_say(l, "pool %s: waiting requests hold %.0f of at most %.0f packet buffers",
			  l->name, held, most);
}

bool rule_prefill_off(const struct doctor_look *l)
{
	const char *state = json_string_value(json_object_get(l->now, "prefill"));

	return state != NULL && strcmp(state, "inactive") == 0 &&
	       doctor_say(l, "prefill pool %s is inactive", l->name);
}

/* ---- workers ---- */

/* Heartbeats come, so that it looks idle and draws requests; it never says that it has one. */
bool rule_unheard(const struct doctor_look *l)
{
	const double n = doctor_grown(l, "unacknowledged"), routed = doctor_grown(l, "routed");
	const char *why = json_string_value(json_object_get(l->now, "why"));

	return n > 0 && 2 * n >= routed && why != NULL && strcmp(why, "suspect") != 0 &&
	       doctor_say(l,
			  "pool %s: rank %s is not silent, but has not acknowledged %.0f %s to "
			  "others",
			  l->pool, l->name, n,
			  doctor_word(n, "request; it went", "requests; they went"));
}

#define FAIL_MOST  4   /* may */
#define FAIL_SHARE 0.1 /* of what ended there */

/* Not those that were not acknowledged: they are rule_unheard()'s. */
bool rule_requests_fail(const struct doctor_look *l)
{
	const char *avoided = json_string_value(json_object_get(l->now, "avoided"));
	const char *why = json_string_value(json_object_get(l->now, "why"));
	const double failed = doctor_grown(l, "failed") - doctor_grown(l, "unacknowledged");
	const double all = failed + doctor_grown(l, "finished");

	if (avoided != NULL && why != NULL && strcmp(why, "failing") == 0)
		return doctor_say(l, "pool %s: rank %s is avoided: %s", l->pool, l->name, avoided);
	return failed > FAIL_MOST && failed > FAIL_SHARE * all &&
	       doctor_say(l, "pool %s: %.0f of %.0f requests failed at rank %s", l->pool, failed,
			  all, l->name);
}

/* The count says that one was lost, the look before which. */
bool rule_worker_lost(const struct doctor_look *l)
{
	const json_t *was = snap_at(l->was, "workers", "workers", NULL);
	const json_t *is = snap_at(l->is, "workers", "workers", NULL);
	const double lost = snap_number(snap_at(l->is, "workers", "lost", NULL)) -
			    snap_number(snap_at(l->was, "workers", "lost", NULL));
	const char *id, *first = "";
	json_t *w;

	if (snap_at(l->was, "workers", "lost", NULL) == NULL || lost <= 0)
		return false;
	json_object_foreach ((json_t *)(uintptr_t)was, id, w)
		if (json_object_get(is, id) == NULL && *first == '\0')
			first = id;
	return doctor_say(l, "%.0f worker%s lost in %.0f s without a drain%s%s", lost,
			  lost > 1 ? "s were" : " was", l->seconds,
			  *first != '\0' ? ", not back: worker " : "", first);
}

static const char *state_of(const struct doctor_look *l)
{
	const char *s = json_string_value(json_object_get(l->now, "state"));

	return s != NULL ? s : "";
}

bool rule_suspect(const struct doctor_look *l)
{
	return strcmp(state_of(l), "suspect") == 0 &&
	       doctor_say(l, "worker %s is silent for %.0f ms and gets no requests", l->name,
			  doctor_now(l, "silent_ms"));
}

/* Who is refused asks again every 10 s, or has gone. */
#define ASKS_AGAIN_MS 12000

/* By worker: the newest refusal of its HELLO. */
bool rule_refused(const struct doctor_look *l)
{
	const char *code = json_string_value(json_object_get(l->now, "code"));
	const char *text = json_string_value(json_object_get(l->now, "text"));
	const double age = doctor_now(l, "age_ms");
	const char *other =
		json_string_value(snap_at(l->is, "workers", "workers", l->name, "address", NULL));
	char who[128] = "";

	if (code != NULL && strcmp(code, "WorkerAlive") == 0)
		snprintf(who, sizeof(who), ", %s; two agents have this number: give one another",
			 other != NULL ? other : "which has gone meanwhile");
	return code != NULL && (age < ASKS_AGAIN_MS || age < l->seconds * 1000) &&
	       doctor_say(l, "worker %s at %s is refused (%s)%s%s%s", l->name,
			  json_string_value(json_object_get(l->now, "address")), code,
			  text != NULL && *text != '\0' ? ": " : "", text != NULL ? text : "", who);
}

/* ---- lcores and what they stand on ---- */

#define STALL_MS   20
#define SHARED	   0.05
#define LOW_BUFFER 0.1

bool rule_stall(const struct doctor_look *l)
{
	const double hz = snap_number(snap_at(l->is, "stages", "tsc_hz", NULL));
	const double was = snap_number(json_object_get(l->before, "max_turn_cycles"));
	const double now = doctor_now(l, "max_turn_cycles");

	return hz > 0 && l->before != NULL && now > was && now / hz * 1000 > STALL_MS &&
	       doctor_say(l, "%s (CPU %.0f) has stood still for %.0f ms", l->name,
			  doctor_now(l, "cpu"), now / hz * 1000);
}

/* ", which N polling lcores have": those of the CPU of thread @name, when there are several. */
static const char *cpu_lcores(const struct doctor_look *l, const char *name, char *out, size_t len)
{
	const json_t *all = snap_at(l->is, "stages", NULL), *one;
	unsigned int eal_id, n = 0;
	const char *lcore;
	char mine[32];
	double cpu;

	*out = '\0';
	/* As DPDK 22.11 names it, and later ones. */
	if (sscanf(name, "rte-worker-%u", &eal_id) != 1 &&
	    sscanf(name, "dpdk-worker%u", &eal_id) != 1)
		return out;
	/* EAL's number 0 is control. */
	snprintf(mine, sizeof(mine), "lcore%u", eal_id - 1);
	one = json_object_get(all, mine);
	cpu = snap_number(json_object_get(one, "cpu"));
	json_object_foreach ((json_t *)(uintptr_t)all, lcore, one)
		n += json_is_object(one) && snap_number(json_object_get(one, "cpu")) == cpu;
	if (json_object_get(all, mine) != NULL && n > 1)
		snprintf(out, len, ", which %u polling lcores have", n);
	return out;
}

bool rule_cpu_shared(const struct doctor_look *l)
{
	const double ms = doctor_grown(l, "wait_ms");
	const char *name = json_string_value(json_object_get(l->now, "name"));
	char others[40];

	name = name != NULL ? name : "";
	return l->seconds > 0 && ms > SHARED * l->seconds * 1000 && ms > 50 &&
	       doctor_say(l, "thread %s (%s) has waited %.0f of %.0f ms for its CPU%s", l->name,
			  name, ms, l->seconds * 1000, cpu_lcores(l, name, others, sizeof(others)));
}

bool rule_buffers_low(const struct doctor_look *l)
{
	const double all = doctor_now(l, "mbufs"), left = doctor_now(l, "mbufs_free");

	return all > 0 && left < LOW_BUFFER * all &&
	       doctor_say(l, "port %s: %.0f of %.0f packet buffers are free", l->name, left, all);
}

bool rule_device_loses(const struct doctor_look *l)
{
	const double missed = doctor_grown(l, "device.imissed");
	const double none = doctor_grown(l, "device.rx_nombuf");
	const double bad = doctor_grown(l, "device.ierrors");

	return missed + none + bad > 0 &&
	       doctor_say(l,
			  "port %s: the device has lost %.0f frames (full), %.0f (no buffer), "
			  "%.0f (errors)",
			  l->name, missed, none, bad);
}

bool rule_link_down(const struct doctor_look *l)
{
	return json_object_get(l->now, "link_up") != NULL && doctor_now(l, "link_up") == 0 &&
	       doctor_say(l, "port %s has no link", l->name);
}

bool rule_xdp_off(const struct doctor_look *l)
{
	const char *on = json_string_value(json_object_get(l->now, "redirect"));

	return on != NULL && strcmp(on, "off") == 0 &&
	       doctor_say(l,
			  "port %s hears nobody: its XDP program leaves every frame to the kernel",
			  l->name);
}

bool rule_xdp_no_socket(const struct doctor_look *l)
{
	const double n = doctor_grown(l, "no_socket");

	return n > 0 && doctor_say(l,
				   "port %s: %.0f frames came by queues of its interface that no "
				   "CPU polls",
				   l->name, n);
}

/* Packet buffers of ports, slots and held frames have rules of their own. */
bool rule_memory_low(const struct doctor_look *l)
{
	const double size = doctor_now(l, "size"), used = doctor_now(l, "used");

	return size > 0 && used > 0.9 * size && strncmp(l->name, "mbufs_", 6) != 0 &&
	       strncmp(l->name, "slots_", 6) != 0 && strncmp(l->name, "frames_", 7) != 0 &&
	       doctor_say(l, "%s: %.0f of %.0f are used", l->name, used, size);
}

/* ---- the whole ---- */

#define MANY_DROPS 5

/* Frames for others that a shared network carries by itself, and what comes late. */
static bool is_noise(const char *name)
{
	static const char *const noise[] = {"_rx_other_mac", "_rx_other_addr", "_rx_other_port",
					    "_rx_other_proto", "_rx_other_vlan",
					    "ingress_unknown_request", "ingress_premature_ack",
					    /* lines, not frames; see rule_log_lost() */
					    "log_buffer_full", "log_rate_limited",
					    /* about requests that have just ended */
					    "reject_unknown_request", "reject_ended"};
	const size_t len = strlen(name);

	for (size_t i = 0; i < sizeof(noise) / sizeof(noise[0]); i++)
		if (len >= strlen(noise[i]) && strcmp(name + len - strlen(noise[i]), noise[i]) == 0)
			return true;
	return false;
}

bool rule_drops(const struct doctor_look *l)
{
	const json_t *is = snap_at(l->now, "drops", NULL), *was = snap_at(l->before, "drops", NULL);
	double most = 0, n = 0;
	const char *name, *worst = NULL;
	json_t *v;

	json_object_foreach ((json_t *)(uintptr_t)is, name, v) {
		const double by = snap_number(v) - snap_number(json_object_get(was, name));

		if (is_noise(name))
			continue;
		n += by > 0 ? by : 0;
		if (by > most) {
			most = by;
			worst = name;
		}
	}
	return worst != NULL && was != NULL && most >= MANY_DROPS &&
	       doctor_say(l,
			  "%.0f frames or requests were refused or dropped in %.0f s, most of "
			  "them as %s (%.0f)",
			  n, l->seconds, worst, most);
}

#define LATE_FRAMES 3 /* of the former life may be under way when a new one begins */

bool rule_event_life(const struct doctor_look *l)
{
	const double n = doctor_grown(l, "ingress.stale_epoch");

	return n > LATE_FRAMES &&
	       doctor_say(l,
			  "%.0f heartbeats or frames of KV events are of a life of "
			  "their worker that is over",
			  n);
}

bool rule_bad_rank(const struct doctor_look *l)
{
	const double n = doctor_grown(l, "ingress.unknown_rank");

	return n > 0 && doctor_say(l,
				   "%.0f %s of KV events %s a rank that the HELLO of their "
				   "worker does not name",
				   n, doctor_word(n, "heartbeat or frame", "heartbeats or frames"),
				   doctor_word(n, "is of", "are of"));
}

bool rule_unbalanced(const struct doctor_look *l)
{
	const char *is = json_string_value(snap_at(l->now, "balance", "balance", NULL));
	const char *was = json_string_value(snap_at(l->before, "balance", "balance", NULL));

	return is != NULL && was != NULL && strcmp(is, "violated") == 0 &&
	       strcmp(was, "violated") == 0 &&
	       doctor_say(l, "the counters do not add up: %s",
			  json_string_value(snap_at(l->now, "balance", "violation", NULL)));
}

/* Somewhere between the beginning of a look and the answer its clock was read. */
static double answered(const json_t *look)
{
	return snap_number(json_object_get(look, "info_at"));
}

#define CLOCK_MS 1000 /* what a clock may be ahead or behind, beside a twentieth */

bool rule_clock_off(const struct doctor_look *l)
{
	const double ms = doctor_grown(l, "info.uptime_ms"), real = l->seconds * 1000;
	const double least = (snap_number(json_object_get(l->is, "at")) - answered(l->was)) * 1000;
	const double most = (answered(l->is) - snap_number(json_object_get(l->was, "at"))) * 1000;

	return l->seconds >= 1 && snap_at(l->before, "info", NULL) != NULL &&
	       doctor_now(l, "info.epoch") ==
		       snap_number(snap_at(l->before, "info", "epoch", NULL)) &&
	       (ms > 1.05 * most + CLOCK_MS || ms < 0.95 * least - CLOCK_MS) &&
	       doctor_say(l, "the router's clock has gone on by %.0f ms in %.0f ms", ms, real);
}

bool rule_log_lost(const struct doctor_look *l)
{
	const double n = doctor_grown(l, "log.buffer_full");

	return n > 0 &&
	       doctor_say(l,
			  "%.0f %s of the log %s dropped: nobody reads standard error "
			  "fast enough",
			  n, doctor_word(n, "line", "lines"), doctor_word(n, "was", "were"));
}
