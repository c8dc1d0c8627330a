/* SPDX-License-Identifier: BSD-3-Clause */
/* Rules about KV events, and about what requests find of them. */
#include "rules_pvt.h"

#include <math.h>
#include <string.h>

#include "snap.h"

/* ---- KV events ---- */

static bool is_kv(const struct doctor_look *l)
{
	return doctor_now(l, "requests.predicted_cached") > 0 || doctor_now(l, "events.frames") > 0;
}

bool rule_no_events(const struct doctor_look *l)
{
	const double was = snap_number(snap_at(l->before, "requests", "finished", NULL));
	double n;

	if (was == 0 || doctor_now(l, "events.frames") > 0)
		return false;
	n = doctor_now(l, "requests.finished");
	return doctor_say(l, "pool %s: %.0f %s ended, and no worker has sent a KV event", l->name,
			  n, doctor_word(n, "request has", "requests have"));
}

/* The rank of pool l->name whose number has grown most, as " (rank 17/0)", or "". */
static const char *worst_rank(const struct doctor_look *l, const char *name, char *buf, size_t len)
{
	const json_t *was = snap_at(l->was, "events", l->name, "ranks", NULL);
	const json_t *is = snap_at(l->is, "events", l->name, "ranks", NULL);
	double most = 0;
	const char *rank;
	json_t *r;

	buf[0] = '\0';
	json_object_foreach ((json_t *)(uintptr_t)is, rank, r) {
		const double by = snap_number(json_object_get(r, name)) -
				  snap_number(snap_at(was, rank, name, NULL));

		if (by > most) {
			most = by;
			snprintf(buf, len, " (rank %s)", rank);
		}
	}
	return buf;
}

bool rule_event_gap(const struct doctor_look *l)
{
	char rank[64];
	const double gaps = doctor_grown(l, "events.gaps");

	return gaps > 0 && doctor_say(l, "pool %s: %.0f %s of KV events came behind a gap%s",
				      l->name, gaps, doctor_word(gaps, "frame", "frames"),
				      worst_rank(l, "gaps", rank, sizeof(rank)));
}

bool rule_event_back(const struct doctor_look *l)
{
	const double stale = doctor_grown(l, "events.already_applied");

	return stale > 100 && stale > 3 * doctor_grown(l, "events.applied") &&
	       doctor_say(l,
			  "pool %s: %.0f frames of KV events have numbers that were there before",
			  l->name, stale);
}

bool rule_orphans(const struct doctor_look *l)
{
	const double n = doctor_grown(l, "prefix.orphans");

	return n > 0 && doctor_say(l,
				   "pool %s: %.0f %s stored behind a parent that nobody has "
				   "announced",
				   l->name, n, doctor_word(n, "block was", "blocks were"));
}

bool rule_unknown_removes(const struct doctor_look *l)
{
	const double n = doctor_grown(l, "prefix.unknown_removes");

	return n > 100 && n > doctor_grown(l, "prefix.removed") &&
	       doctor_say(l, "pool %s: %.0f blocks were removed that their ranks never stored",
			  l->name, n);
}

/* ---- ranks ---- */

static const json_t *events_of(const json_t *look, const struct doctor_look *l)
{
	return snap_at(look, "events", l->pool, "ranks", l->name, NULL);
}

static double event_number(const struct doctor_look *l, const json_t *look, const char *name)
{
	return snap_number(json_object_get(events_of(look, l), name));
}

/* Of a rank whose pool has events: it has none. */
/* Its events are read where they tell a block size: another one than the pool's is a rule of its
 * own. */
bool rule_silent_rank(const struct doctor_look *l)
{
	const double frames =
		snap_number(snap_at(l->is, "pools", l->pool, "events", "frames", NULL));
	const double size = event_number(l, l->is, "block_size");
	const double want = snap_number(snap_at(l->is, "pools", l->pool, "block_size", NULL));

	return frames > 0 && (size == 0 || size == want) &&
	       snap_number(json_object_get(l->before, "finished")) > 0 &&
	       events_of(l->is, l) != NULL && event_number(l, l->is, "next_event_id") == 0 &&
	       event_number(l, l->is, "stored") == 0 &&
	       doctor_say(l, "pool %s: rank %s has finished %.0f %s and sent no KV event", l->pool,
			  l->name, doctor_now(l, "finished"),
			  doctor_word(doctor_now(l, "finished"), "request", "requests"));
}

/* Its blocks are not all known, and nothing has come since. */
bool rule_not_authoritative(const struct doctor_look *l)
{
	const json_t *was = events_of(l->was, l), *is = events_of(l->is, l);

	return json_object_get(is, "authoritative") != NULL && was != NULL &&
	       event_number(l, l->is, "next_event_id") > 0 &&
	       event_number(l, l->is, "authoritative") == 0 &&
	       event_number(l, l->was, "authoritative") == 0 &&
	       doctor_say(l, "pool %s: KV events of rank %s are missing for %.0f s", l->pool,
			  l->name, l->seconds);
}

#define LAG 64

bool rule_lags(const struct doctor_look *l)
{
	const double was = event_number(l, l->was, "lag"), is = event_number(l, l->is, "lag");

	return was > LAG && is >= was &&
	       doctor_say(l,
			  "pool %s: %.0f KV events of rank %s have not arrived, and they become "
			  "no fewer",
			  l->pool, is, l->name);
}

bool rule_unread_events(const struct doctor_look *l)
{
	const double n = event_number(l, l->is, "unread") - event_number(l, l->was, "unread");

	return events_of(l->was, l) != NULL && n > 0 &&
	       doctor_say(l,
			  "pool %s: %.0f KV %s of its engine could not be read by the agent of "
			  "rank %s",
			  l->pool, n, doctor_word(n, "event", "events"), l->name);
}

bool rule_event_block_size(const struct doctor_look *l)
{
	const double size = event_number(l, l->is, "block_size");
	const double want = snap_number(snap_at(l->is, "pools", l->pool, "block_size", NULL));

	return size > 0 && want > 0 && size != want &&
	       doctor_say(l,
			  "pool %s: KV events of rank %s are about blocks of %.0f tokens, the pool "
			  "has %.0f",
			  l->pool, l->name, size, want);
}

/* Hashes of windows and of tokens never meet. */
bool rule_event_eagle(const struct doctor_look *l)
{
	const bool pairs = event_number(l, l->is, "pairs") != 0;
	const bool eagle = snap_number(snap_at(l->is, "pools", l->pool, "eagle", NULL)) != 0;

	return json_object_get(events_of(l->is, l), "pairs") != NULL &&
	       snap_at(l->is, "pools", l->pool, "eagle", NULL) != NULL && pairs != eagle &&
	       doctor_say(l, "pool %s: KV events of rank %s name %s, the pool has eagle = %s",
			  l->pool, l->name, pairs ? "pairs of tokens (EAGLE)" : "single tokens",
			  eagle ? "true" : "false");
}

/* Of a worker; each of its ranks has its number. One alone may be an engine that was slow to tell.
 */
bool rule_canary(const struct doctor_look *l)
{
	const char *pool = json_string_value(json_object_get(l->now, "pool"));
	const size_t len = strlen(l->name);
	double n = 0;
	const char *rank;
	json_t *r;

	if (pool == NULL)
		return false;
	json_object_foreach ((json_t *)(uintptr_t)snap_at(l->is, "events", pool, "ranks", NULL),
			     rank, r)
		if (strncmp(rank, l->name, len) == 0 && rank[len] == '/')
			n = fmax(n, snap_number(json_object_get(r, "canaries_missed")));
	return n > 1 &&
	       doctor_say(l,
			  "pool %s: what worker %s caches has other names than its prompts: %.0f "
			  "canary prompts in a row did not come back in its engine's events, no "
			  "prefix is found there",
			  pool, l->name, n);
}

bool rule_useless_cache(const struct doctor_look *l)
{
	const struct doctor_look pool = {.before = snap_at(l->was, "pools", l->pool, NULL),
					 .now = snap_at(l->is, "pools", l->pool, NULL)};
	const double held = event_number(l, l->was, "held");

	/* Prompts without a block cannot meet one. */
	return held > 0 &&
	       doctor_grown(&pool, "requests.no_blocks") <
		       0.5 * doctor_grown(&pool, "requests.routes") &&
	       doctor_grown(l, "routed") >= 20 && doctor_grown(l, "predicted_tokens") == 0 &&
	       doctor_say(l,
			  "pool %s: rank %s holds %.0f %s, and none of %.0f requests that went "
			  "there has met one",
			  l->pool, l->name, held, doctor_word(held, "block", "blocks"),
			  doctor_grown(l, "routed"));
}

bool rule_batch_unknown(const struct doctor_look *l)
{
	const char *key = json_string_value(snap_at(l->is, "pools", l->pool, "batch_key", NULL));

	return key != NULL && key[0] != '\0' &&
	       json_object_get(l->now, "max_num_batched_tokens") != NULL &&
	       doctor_now(l, "max_num_batched_tokens") == 0 &&
	       doctor_say(l,
			  "pool %s: the batch budget of rank %s is unknown, so %s has no effect on "
			  "it",
			  l->pool, l->name, key);
}

/* It may be asked, and is not, though its pool is busy. */
bool rule_unused(const struct doctor_look *l)
{
	const struct doctor_look pool = {.before = snap_at(l->was, "pools", l->pool, NULL),
					 .now = snap_at(l->is, "pools", l->pool, NULL)};
	const size_t ranks = json_object_size(snap_at(l->is, "loads", l->pool, "ranks", NULL));
	const double routes = doctor_grown(&pool, "requests.routed");

	return l->before != NULL && doctor_now(l, "eligible") != 0 &&
	       doctor_now(l, "active_requests") == 0 && doctor_grown(l, "routed") == 0 &&
	       routes >= 50.0 * (double)ranks &&
	       doctor_say(l, "pool %s: rank %s got none of %.0f requests", l->pool, l->name,
			  routes);
}

/* ---- what requests carry ---- */

bool rule_no_blocks(const struct doctor_look *l)
{
	const double all = doctor_grown(l, "requests.routes");
	const double none = doctor_grown(l, "requests.no_blocks");

	return none >= 8 && none > 0.5 * all && is_kv(l) &&
	       doctor_say(
		       l,
		       "pool %s: %.0f of %.0f requests came without the hash of a whole block of "
		       "%.0f tokens",
		       l->name, none, all, doctor_now(l, "block_size"));
}

/* Hits were predicted before the first look, and no engine has ever told what it found of any. */
bool rule_no_actual(const struct doctor_look *l)
{
	const struct doctor_look h = {.before = snap_at(l->was, "hits", l->name, NULL),
				      .now = snap_at(l->is, "hits", l->name, NULL)};

	return doctor_grown(l, "requests.finished") >= 8 &&
	       snap_number(json_object_get(h.before, "achieved_tokens")) > 0 &&
	       doctor_now(&h, "reported_predicted_tokens") == 0 &&
	       doctor_now(l, "requests.actual_cached") == 0 &&
	       doctor_say(l,
			  "pool %s: %.0f cached tokens were predicted, and no engine has told how "
			  "many it found",
			  l->name, doctor_now(&h, "achieved_tokens"));
}

static double hit(const struct doctor_look *l, const char *name)
{
	const struct doctor_look h = {.before = snap_at(l->was, "hits", l->name, NULL),
				      .now = snap_at(l->is, "hits", l->name, NULL)};

	return doctor_grown(&h, name);
}

bool rule_overpredicts(const struct doctor_look *l)
{
	const double said = doctor_grown(l, "requests.predicted_cached");
	const double found = doctor_grown(l, "requests.actual_cached");

	return doctor_grown(l, "requests.finished") >= 8 && found > 0 && said > 1000 &&
	       said > 1.5 * found && hit(l, "short.nothing_shared") < 0.2 * said &&
	       doctor_say(l, "pool %s: %.0f cached tokens were predicted, the engines found %.0f",
			  l->name, said, found);
}

/* Engines that find nothing at all of what the router knows to be there. */
bool rule_other_hashes(const struct doctor_look *l)
{
	const double said = hit(l, "reported_predicted_tokens");
	const double none = hit(l, "short.nothing_shared");

	return said > 1000 && none >= 0.2 * said &&
	       doctor_say(l,
			  "pool %s: of %.0f cached tokens predicted, engines found none of %.0f "
			  "where they should have found some",
			  l->name, said, none);
}

/* Bookings though another rank that could be asked had more of the prompt. */
bool rule_far_from_best(const struct doctor_look *l)
{
	const double all = hit(l, "prompt_tokens");
	const double got = hit(l, "achieved_tokens"), best = hit(l, "achievable_tokens");

	return all > 10000 && got < 0.5 * best &&
	       doctor_say(l,
			  "pool %s: %.0f %% of the prompts were cached where they went, %.0f %% "
			  "could have been",
			  l->name, 100 * got / all, 100 * best / all);
}

/* ---- the table of blocks ---- */

bool rule_table_full(const struct doctor_look *l)
{
	const double all = doctor_now(l, "prefix.memory_bytes");
	const double used = doctor_now(l, "prefix.used_bytes");
	const double out = doctor_grown(l, "prefix.evicted_entries");
	const double lost = doctor_grown(l, "prefix.dropped");

	if (out + lost == 0 && (all == 0 || used < 0.95 * all))
		return false;
	return doctor_say(l,
			  "pool %s: the table of blocks is full: %.0f %% of its memory, %.0f "
			  "entries dropped, %.0f not stored",
			  l->name, all > 0 ? 100 * used / all : 0, out, lost);
}
