/* SPDX-License-Identifier: BSD-3-Clause */
#include "counters.h"

#include <ctype.h>
#include <stdio.h>

#include "kvr_frame.h"

static const struct kvr_counter in_counters[] = {
	[IN_FRAMES] = {"frames", "frames", "datagrams for the router"},
	[IN_ROUTES] = {"routes", "frames", "ROUTE messages of one frame given to a scheduler"},
	[IN_FRAGMENTS] = {"fragments", "frames", "fragments taken for reassembly"},
	[IN_RELAYED] = {"relayed", "frames", "RESPONSE and RESPONSE_ACK switched"},
	[IN_NOTES] = {"notes", "frames", "other frames about requests given to a scheduler"},
	[IN_EVENTS] = {"events", "frames", "KV_EVENTS given to an event stage or told to wait"},
	[IN_CONTROL] = {"control", "frames", "frames given to the control thread"},
	[IN_HEARTBEATS] = {"heartbeats", "frames", "HEARTBEAT answered"},
	[IN_REJECTED] = {"rejected", "frames", "frames refused, by code under rejects"},
	[IN_IGNORED] = {"ignored", "frames", "frames neither used nor answered"},
	[IN_SHORT] = {"short", "frames", "ignored: shorter than a header"},
	[IN_MAGIC] = {"magic", "frames", "ignored: another protocol"},
	[IN_LATE] = {"late", "frames", "ignored: about a request that is gone"},
	[IN_LIMITED] = {"limited", "frames", "ignored: CONNECT, HELLO of a source above its rate"},
	[IN_SHARE] = {"share", "frames", "ignored: KV events of a source above its share"},
	[IN_RING_FULL] = {"ring_full", "frames", "ignored: ring full, the sender repeats it"},
	[IN_HANDED] = {"handed", "frames", "fragments that came to another ingress lcore"},
	[IN_MESSAGES] = {"messages", "messages", "ROUTE messages completed from fragments"},
	[IN_REASM_OUT] = {"reassembly_dropped", "frames", "fragments of messages given up"},
	[IN_REASM_EVICTED] = {"reassembly_evicted", "messages",
			      "oldest messages given up for room"},
	[IN_ASKED] = {"missing_sent", "frames", "MISSING sent: what a message lacks"},
	[IN_UNANSWERED] = {"unanswered", "frames", "refusals not answered: address or rate"},
	[IN_NO_MBUF] = {"no_mbuf", "frames", "answers not sent for want of a buffer"},
	[IN_EGRESS_FULL] = {"egress_full", "frames", "frames of other lcores dropped, ring full"},
	[IN_SPLIT] = {"split", "messages", "messages cut anew for a smaller path"},
	[IN_UNSENDABLE] = {"unsendable", "messages", "messages that fit no frame of their path"},
	{NULL, NULL, NULL, 0},
};

static const struct kvr_equation in_equations[] = {
	{"frames = routes + fragments + relayed + notes + events + control + heartbeats + rejected "
	 "+ "
	 "ignored",
	 KVR_TERMS(IN_FRAMES),
	 KVR_TERMS(IN_ROUTES, IN_FRAGMENTS, IN_RELAYED, IN_NOTES, IN_EVENTS, IN_CONTROL,
		   IN_HEARTBEATS, IN_REJECTED, IN_IGNORED)},
	{"ignored = short + magic + late + limited + share + ring_full", KVR_TERMS(IN_IGNORED),
	 KVR_TERMS(IN_SHORT, IN_MAGIC, IN_LATE, IN_LIMITED, IN_SHARE, IN_RING_FULL)},
	{NULL, NULL, NULL},
};

const struct kvr_stats_def router_in_stats = {"ingress", in_counters, in_equations};

static const struct kvr_counter pool_counters[] = {
	[PC_ROUTES] = {"routes", "requests", "ROUTE messages that reached the scheduler"},
	[PC_QUERIES] = {"queries", "requests", "query-only requests answered"},
	[PC_REPEATS] = {"repeats", "requests", "repeated ROUTEs answered from the request's slot"},
	[PC_REJECTED] = {"rejected", "requests", "requests refused by the scheduler"},
	[PC_ROUTED] = {"routed", "requests", "requests booked at once"},
	[PC_QUEUED] = {"queued", "requests", "requests that had to wait"},
	[PC_ADMITTED] = {"admitted", "requests", "waiting requests booked"},
	[PC_QUEUE_LEFT] = {"queue_left", "requests", "waiting requests cancelled or out of time"},
	[PC_QUEUE_FAILED] = {"queue_failed", "requests", "waiting requests refused on admission"},
	[PC_WAITING] = {"waiting", "requests", "requests waiting now", KVR_COUNTER_F_GAUGE},
	[PC_FINISHED] = {"finished", "requests", "bookings ended by the engine"},
	[PC_ERRORED] = {"errored", "requests", "bookings ended by an engine error"},
	[PC_CANCELLED] = {"cancelled", "requests",
			  "bookings cancelled by the client, or cut off when the router stops"},
	[PC_REFUSED] = {"refused", "requests", "bookings refused by the worker"},
	[PC_LOST] = {"lost", "requests", "bookings lost with their worker"},
	[PC_EXPIRED] = {"expired", "requests", "bookings that reached the age limit"},
	[PC_LIVE] = {"live", "requests", "bookings now", KVR_COUNTER_F_GAUGE},
	[PC_DISAGG] = {"disagg", "requests", "requests that began with a prefill leg"},
	[PC_BYPASSED] = {"bypassed", "requests", "requests that went past the prefill pool"},
	[PC_STARTED_OVER] = {"started_over", "requests", "new tries after a failed prefill leg"},
	[PC_LEG_ROUTED] = {"leg_routed", "legs", "decode legs booked at once"},
	[PC_LEG_QUEUED] = {"leg_queued", "legs", "decode legs that had to wait"},
	[PC_LEG_REFUSED] = {"leg_refused", "legs", "decode legs refused by the scheduler"},
	[PC_UNDECIDED] = {"undecided", "legs", "tries that ended before the decode leg's turn"},
	[PC_PREFILLING] = {"prefilling", "requests", "decode legs whose turn has not come",
			   KVR_COUNTER_F_GAUGE},
	[PC_STOPPED] = {"stopped", "legs", "decode bookings that ended with their prefill leg"},
	[PC_CLIENT_GONE] = {"client_gone", "requests", "waiting requests whose client fell silent"},
	[PC_LATE] = {"late", "frames",
		     "frames about requests that came again, or too late to matter"},
	[PC_OUT_OF_TURN] = {"out_of_turn", "frames",
			    "frames that the state of their request does not allow, ignored"},
	[PC_STRANGERS] =
		{"strangers", "frames",
		 "frames about a request or session from another address than its client's"},
	[PC_NOTES_LOST] =
		{"notes_lost", "frames",
		 "CANCEL, PROBE dropped on their way to the next pool, its ring was full"},
	[PC_MADE_ROOM] = {"made_room", "requests",
			  "ended requests forgotten early, as their slot was needed"},
	[PC_LOADS] = {"loads", "messages", "POTENTIAL_LOADS answered"},
	[PC_DISPATCHES] = {"dispatches", "requests", "DISPATCH messages sent, repeats included"},
	[PC_PREDICTED_TOKENS] = {"predicted_cached", "tokens",
				 "cached tokens predicted at routing"},
	[PC_ACTUAL_TOKENS] = {"actual_cached", "tokens", "cached tokens found by the engines"},
	[PC_PREDICTIONS] = {"predictions", "requests", "decisions entered as predicted blocks"},
	[PC_PREDICTIONS_LOST] = {"predictions_lost", "requests", "predictions dropped, no room"},
	{NULL, NULL, NULL, 0},
};

static const struct kvr_equation pool_equations[] = {
	{"routes = queries + repeats + rejected + routed + queued + disagg", KVR_TERMS(PC_ROUTES),
	 KVR_TERMS(PC_QUERIES, PC_REPEATS, PC_REJECTED, PC_ROUTED, PC_QUEUED, PC_DISAGG)},
	{"queued + leg_queued = admitted + queue_left + queue_failed + waiting",
	 KVR_TERMS(PC_QUEUED, PC_LEG_QUEUED),
	 KVR_TERMS(PC_ADMITTED, PC_QUEUE_LEFT, PC_QUEUE_FAILED, PC_WAITING)},
	{"disagg + started_over = leg_routed + leg_queued + leg_refused + undecided + prefilling",
	 KVR_TERMS(PC_DISAGG, PC_STARTED_OVER),
	 KVR_TERMS(PC_LEG_ROUTED, PC_LEG_QUEUED, PC_LEG_REFUSED, PC_UNDECIDED, PC_PREFILLING)},
	{"routed + leg_routed + admitted = finished + errored + cancelled + refused + lost + "
	 "expired + stopped + live",
	 KVR_TERMS(PC_ROUTED, PC_LEG_ROUTED, PC_ADMITTED),
	 KVR_TERMS(PC_FINISHED, PC_ERRORED, PC_CANCELLED, PC_REFUSED, PC_LOST, PC_EXPIRED,
		   PC_STOPPED, PC_LIVE)},
	{NULL, NULL, NULL},
};

const struct kvr_stats_def router_pool_stats = {"pool", pool_counters, pool_equations};

static const struct kvr_counter session_counters[] = {
	[SC_OPENS] = {"opens", "sessions", "sessions that workers were asked to open"},
	[SC_OPENING] = {"opening", "sessions", "opens not answered yet", KVR_COUNTER_F_GAUGE},
	[SC_BOUND] = {"bound", "sessions", "sessions opened and bound"},
	[SC_OPEN_REFUSED] = {"open_refused", "sessions", "opens refused by the worker"},
	[SC_OPEN_UNANSWERED] = {"open_unanswered", "sessions", "opens without answer for 5 s"},
	[SC_OPEN_ENDED] = {"open_ended", "sessions", "opens whose request ended before the answer"},
	[SC_REFUSED] = {"refused", "sessions", "sessions beyond max_sessions"},
	[SC_OPEN_BUSY] = {"open_busy", "sessions", "opens refused: another request opens the id"},
	[SC_AFFINITY_BOUND] = {"affinity_bound", "sessions", "ids bound by their first success"},
	[SC_REBOUND] = {"rebound", "sessions", "bindings that replaced one of the same id"},
	[SC_UNBOUND] = {"unbound", "sessions", "bindings closed or released by clients"},
	[SC_EXPIRED] = {"expired", "sessions", "bindings that were idle for too long"},
	[SC_INVALIDATED] = {"invalidated", "sessions", "affinities ended by a failure"},
	[SC_LIVE] = {"live", "sessions", "bindings now", KVR_COUNTER_F_GAUGE},
	[SC_CLOSES] = {"closes", "sessions", "sessions that workers were told to close"},
	[SC_CLOSED] = {"closed", "sessions", "closes answered"},
	[SC_CLOSE_UNANSWERED] = {"close_unanswered", "sessions", "closes without answer for 5 s"},
	[SC_CLOSE_DROPPED] = {"close_dropped", "sessions", "closes given up for newer ones"},
	[SC_CLOSE_GONE] = {"close_gone", "sessions", "closes whose worker has left"},
	[SC_CLOSING] = {"closing", "sessions", "closes not answered yet", KVR_COUNTER_F_GAUGE},
	{NULL, NULL, NULL, 0},
};

static const struct kvr_equation session_equations[] = {
	{"opens = bound + open_refused + open_unanswered + open_ended + opening",
	 KVR_TERMS(SC_OPENS),
	 KVR_TERMS(SC_BOUND, SC_OPEN_REFUSED, SC_OPEN_UNANSWERED, SC_OPEN_ENDED, SC_OPENING)},
	{"bound + affinity_bound = rebound + unbound + expired + invalidated + live",
	 KVR_TERMS(SC_BOUND, SC_AFFINITY_BOUND),
	 KVR_TERMS(SC_REBOUND, SC_UNBOUND, SC_EXPIRED, SC_INVALIDATED, SC_LIVE)},
	{"closes = closed + close_unanswered + close_dropped + close_gone + closing",
	 KVR_TERMS(SC_CLOSES),
	 KVR_TERMS(SC_CLOSED, SC_CLOSE_UNANSWERED, SC_CLOSE_DROPPED, SC_CLOSE_GONE, SC_CLOSING)},
	{NULL, NULL, NULL},
};

const struct kvr_stats_def router_session_stats = {"session", session_counters, session_equations};

static const struct kvr_counter event_counters[] = {
	[EC_FRAMES] = {"frames", "frames", "KV_EVENTS frames that reached the event stage"},
	[EC_APPLIED] = {"applied", "frames", "frames applied, at least in part"},
	[EC_STALE] = {"stale", "frames", "frames of events applied before"},
	[EC_GAPS] = {"gaps", "frames", "frames refused because earlier events are missing"},
	[EC_DUMPS] = {"dumps", "frames", "frames of dumps applied"},
	[EC_UNKNOWN] = {"unknown", "frames",
			"frames of a worker or a life of it that the rank is not of any more"},
	[EC_BUSY] = {"busy", "frames", "frames put off: the rank's old blocks are being freed"},
	[EC_STORED_BLOCKS] = {"stored", "blocks", "blocks stored"},
	[EC_REMOVED_BLOCKS] = {"removed", "blocks", "blocks removed"},
	[EC_CLEARS] = {"clears", "events", "ranks cleared by events"},
	{NULL, NULL, NULL, 0},
};

static const struct kvr_equation event_equations[] = {
	{"frames = applied + stale + gaps + dumps + unknown + busy", KVR_TERMS(EC_FRAMES),
	 KVR_TERMS(EC_APPLIED, EC_STALE, EC_GAPS, EC_DUMPS, EC_UNKNOWN, EC_BUSY)},
	{NULL, NULL, NULL},
};

const struct kvr_stats_def router_event_stats = {"event", event_counters, event_equations};

/* "NoEndpoints" -> "no_endpoints"; codes without a name are "code_N". */
static void snake(unsigned int code, char *out, size_t len)
{
	const char *s = kvr_code_name(code);
	size_t n = 0;

	if (s[0] == '?') {
		snprintf(out, len, "code_%u", code);
		return;
	}
	for (; *s != '\0' && n + 2 < len; s++) {
		if (isupper((unsigned char)*s) && n > 0)
			out[n++] = '_';
		out[n++] = (char)tolower((unsigned char)*s);
	}
	out[n] = '\0';
}

const struct kvr_stats_def *router_reject_stats(void)
{
	static char names[KVR_E_MAX][48];
	static struct kvr_counter counters[KVR_E_MAX + 1];
	static const struct kvr_stats_def def = {"reject", counters, NULL};

	for (unsigned int i = 0; i < KVR_E_MAX && counters[i].name == NULL; i++) {
		snake(i, names[i], sizeof(names[i]));
		counters[i] =
			(struct kvr_counter){names[i], "messages", "REJECTED with this code", 0};
	}
	return &def;
}
