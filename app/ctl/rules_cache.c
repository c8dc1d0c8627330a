/* SPDX-License-Identifier: BSD-3-Clause */
/* Rules about KV events, and about the cache hits of requests. */
#include "rules_pvt.h"

#include <math.h>
#include <string.h>

#include "sample.h"

/* ---- KV events ---- */

static bool uses_kv_events(const struct doctor_input *in)
{
	return doctor_get_number(in, "requests.predicted_cached") > 0 ||
	       doctor_get_number(in, "events.frames") > 0;
}

bool rule_no_events(const struct doctor_input *in)
{
	const double was = sample_to_number(sample_get(in->before, "requests", "finished", NULL));
	double n;

	if (was == 0 || doctor_get_number(in, "events.frames") > 0)
		return false;
	n = doctor_get_number(in, "requests.finished");
	return doctor_report(in, "pool %s: %.0f %s ended, but no worker has sent KV events",
			     in->name, n, doctor_pick_word(n, "request has", "requests have"));
}

/* Write " (rank 17/0)" for the rank of pool in->name with the largest growth of @p name, or "". */
static const char *name_worst_rank(const struct doctor_input *in, const char *name, char *buf,
				   size_t len)
{
	const json_t *was = sample_get(in->was, "events", in->name, "ranks", NULL);
	const json_t *is = sample_get(in->is, "events", in->name, "ranks", NULL);
	double most = 0;
	const char *rank;
	json_t *r;

	buf[0] = '\0';
	json_object_foreach ((json_t *)(uintptr_t)is, rank, r) {
		const double by = sample_to_number(json_object_get(r, name)) -
				  sample_to_number(sample_get(was, rank, name, NULL));

		if (by > most) {
			most = by;
			snprintf(buf, len, " (rank %s)", rank);
		}
	}
	return buf;
}

bool rule_event_gap(const struct doctor_input *in)
{
	char rank[64];
	const double gaps = doctor_get_growth(in, "events.gaps");

	return gaps > 0 && doctor_report(in, "pool %s: %.0f %s of KV events arrived after a gap%s",
					 in->name, gaps, doctor_pick_word(gaps, "frame", "frames"),
					 name_worst_rank(in, "gaps", rank, sizeof(rank)));
}

bool rule_repeated_events(const struct doctor_input *in)
{
	const double stale = doctor_get_growth(in, "events.already_applied");

	return stale > 100 && stale > 3 * doctor_get_growth(in, "events.applied") &&
	       doctor_report(in, "pool %s: %.0f frames of KV events repeated earlier events",
			     in->name, stale);
}

bool rule_orphans(const struct doctor_input *in)
{
	const double n = doctor_get_growth(in, "prefix.orphans");

	return n > 0 && doctor_report(in, "pool %s: %.0f %s stored with an unknown parent",
				      in->name, n, doctor_pick_word(n, "block was", "blocks were"));
}

bool rule_unknown_removes(const struct doctor_input *in)
{
	const double n = doctor_get_growth(in, "prefix.unknown_removes");

	return n > 100 && n > doctor_get_growth(in, "prefix.removed") &&
	       doctor_report(in,
			     "pool %s: KV events removed %.0f blocks that were not stored before",
			     in->name, n);
}

/* ---- ranks ---- */

static const json_t *get_events(const json_t *sample, const struct doctor_input *in)
{
	return sample_get(sample, "events", in->pool, "ranks", in->name, NULL);
}

static double get_event_number(const struct doctor_input *in, const json_t *sample,
			       const char *name)
{
	return sample_to_number(json_object_get(get_events(sample, in), name));
}

/* The pool has KV events, but not the rank. Events with a different block size have their own
 * rule. */
bool rule_rank_no_events(const struct doctor_input *in)
{
	const double frames =
		sample_to_number(sample_get(in->is, "pools", in->pool, "events", "frames", NULL));
	const double size = get_event_number(in, in->is, "block_size");
	const double want =
		sample_to_number(sample_get(in->is, "pools", in->pool, "block_size", NULL));

	return frames > 0 && (size == 0 || size == want) &&
	       sample_to_number(json_object_get(in->before, "finished")) > 0 &&
	       get_events(in->is, in) != NULL &&
	       get_event_number(in, in->is, "next_event_id") == 0 &&
	       get_event_number(in, in->is, "stored") == 0 &&
	       doctor_report(
		       in, "pool %s: rank %s finished %.0f %s without a KV event", in->pool,
		       in->name, doctor_get_number(in, "finished"),
		       doctor_pick_word(doctor_get_number(in, "finished"), "request", "requests"));
}

/* Blocks of the rank are unknown in both samples. */
bool rule_not_authoritative(const struct doctor_input *in)
{
	const json_t *was = get_events(in->was, in), *is = get_events(in->is, in);

	return json_object_get(is, "authoritative") != NULL && was != NULL &&
	       get_event_number(in, in->is, "next_event_id") > 0 &&
	       get_event_number(in, in->is, "authoritative") == 0 &&
	       get_event_number(in, in->was, "authoritative") == 0 &&
	       doctor_report(in, "pool %s: KV events of rank %s have been missing for %.0f s",
			     in->pool, in->name, in->seconds);
}

#define LAG 64

bool rule_event_lag(const struct doctor_input *in)
{
	const double was = get_event_number(in, in->was, "lag"),
		     is = get_event_number(in, in->is, "lag");

	return was > LAG && is >= was &&
	       doctor_report(
		       in,
		       "pool %s: rank %s is %.0f KV events behind its agent, and not catching up",
		       in->pool, in->name, is);
}

bool rule_unread_events(const struct doctor_input *in)
{
	const double n =
		get_event_number(in, in->is, "unread") - get_event_number(in, in->was, "unread");

	return get_events(in->was, in) != NULL && n > 0 &&
	       doctor_report(
		       in, "pool %s: the agent of rank %s could not read %.0f KV %s of its engine",
		       in->pool, in->name, n, doctor_pick_word(n, "event", "events"));
}

bool rule_event_block_size(const struct doctor_input *in)
{
	const double size = get_event_number(in, in->is, "block_size");
	const double want =
		sample_to_number(sample_get(in->is, "pools", in->pool, "block_size", NULL));

	return size > 0 && want > 0 && size != want &&
	       doctor_report(
		       in,
		       "pool %s: KV events of rank %s have blocks of %.0f tokens, but block_size is %.0f",
		       in->pool, in->name, size, want);
}

/* Hashes of pairs of tokens never equal hashes of single tokens. */
bool rule_event_eagle(const struct doctor_input *in)
{
	const bool pairs = get_event_number(in, in->is, "pairs") != 0;
	const bool eagle =
		sample_to_number(sample_get(in->is, "pools", in->pool, "eagle", NULL)) != 0;

	return json_object_get(get_events(in->is, in), "pairs") != NULL &&
	       sample_get(in->is, "pools", in->pool, "eagle", NULL) != NULL && pairs != eagle &&
	       doctor_report(
		       in, "pool %s: KV events of rank %s hash %s, but the pool has eagle = %s",
		       in->pool, in->name, pairs ? "pairs of tokens (EAGLE)" : "single tokens",
		       eagle ? "true" : "false");
}

/* The number is the worker's, repeated in each of its ranks. One miss alone may be a late event. */
bool rule_canary(const struct doctor_input *in)
{
	const char *pool = json_string_value(json_object_get(in->now, "pool"));
	const size_t len = strlen(in->name);
	double n = 0;
	const char *rank;
	json_t *r;

	if (pool == NULL)
		return false;
	json_object_foreach ((json_t *)(uintptr_t)sample_get(in->is, "events", pool, "ranks", NULL),
			     rank, r)
		if (strncmp(rank, in->name, len) == 0 && rank[len] == '/')
			n = fmax(n, sample_to_number(json_object_get(r, "canaries_missed")));
	return n > 1 &&
	       doctor_report(
		       in,
		       "pool %s: requests cannot find blocks of worker %s: %.0f canary prompts in a row did not appear in its KV events",
		       pool, in->name, n);
}

bool rule_no_cache_hits(const struct doctor_input *in)
{
	const struct doctor_input pool = {.before = sample_get(in->was, "pools", in->pool, NULL),
					  .now = sample_get(in->is, "pools", in->pool, NULL)};
	const double held = get_event_number(in, in->was, "held");

	/* Prompts without block hashes cannot have an overlap. */
	return held > 0 &&
	       doctor_get_growth(&pool, "requests.no_blocks") <
		       0.5 * doctor_get_growth(&pool, "requests.routes") &&
	       doctor_get_growth(in, "routed") >= 20 &&
	       doctor_get_growth(in, "predicted_tokens") == 0 &&
	       doctor_report(
		       in,
		       "pool %s: rank %s holds %.0f %s, but %.0f requests routed there had no overlap",
		       in->pool, in->name, held, doctor_pick_word(held, "block", "blocks"),
		       doctor_get_growth(in, "routed"));
}

bool rule_batch_unknown(const struct doctor_input *in)
{
	const char *key =
		json_string_value(sample_get(in->is, "pools", in->pool, "batch_key", NULL));

	return key != NULL && key[0] != '\0' &&
	       json_object_get(in->now, "max_num_batched_tokens") != NULL &&
	       doctor_get_number(in, "max_num_batched_tokens") == 0 &&
	       doctor_report(
		       in,
		       "pool %s: the batch budget of rank %s is unknown, so %s has no effect on it",
		       in->pool, in->name, key);
}

/* The rank is eligible and its pool is busy, but it is never chosen. */
bool rule_idle_rank(const struct doctor_input *in)
{
	const struct doctor_input pool = {.before = sample_get(in->was, "pools", in->pool, NULL),
					  .now = sample_get(in->is, "pools", in->pool, NULL)};
	const size_t ranks = json_object_size(sample_get(in->is, "loads", in->pool, "ranks", NULL));
	const double routes = doctor_get_growth(&pool, "requests.routed");

	return in->before != NULL && doctor_get_number(in, "eligible") != 0 &&
	       doctor_get_number(in, "active_requests") == 0 &&
	       doctor_get_growth(in, "routed") == 0 && routes >= 50.0 * (double)ranks &&
	       doctor_report(in, "pool %s: rank %s received none of %.0f requests", in->pool,
			     in->name, routes);
}

/* ---- requests ---- */

bool rule_no_blocks(const struct doctor_input *in)
{
	const double all = doctor_get_growth(in, "requests.routes");
	const double none = doctor_get_growth(in, "requests.no_blocks");

	return none >= 8 && none > 0.5 * all && uses_kv_events(in) &&
	       doctor_report(
		       in,
		       "pool %s: %.0f of %.0f requests had neither block hashes nor a block of %.0f tokens",
		       in->name, none, all, doctor_get_number(in, "block_size"));
}

/* Hits were predicted before the first sample, but no engine has ever reported cached tokens. */
bool rule_no_actual(const struct doctor_input *in)
{
	const struct doctor_input h = {.before = sample_get(in->was, "hits", in->name, NULL),
				       .now = sample_get(in->is, "hits", in->name, NULL)};

	return doctor_get_growth(in, "requests.finished") >= 8 &&
	       sample_to_number(json_object_get(h.before, "achieved_tokens")) > 0 &&
	       doctor_get_number(&h, "reported_predicted_tokens") == 0 &&
	       doctor_get_number(in, "requests.actual_cached") == 0 &&
	       doctor_report(
		       in,
		       "pool %s: %.0f cached tokens were predicted, but no engine has reported cached tokens",
		       in->name, doctor_get_number(&h, "achieved_tokens"));
}

static double get_hit_growth(const struct doctor_input *in, const char *name)
{
	const struct doctor_input h = {.before = sample_get(in->was, "hits", in->name, NULL),
				       .now = sample_get(in->is, "hits", in->name, NULL)};

	return doctor_get_growth(&h, name);
}

bool rule_overpredicts(const struct doctor_input *in)
{
	const double predicted = doctor_get_growth(in, "requests.predicted_cached");
	const double found = doctor_get_growth(in, "requests.actual_cached");

	return doctor_get_growth(in, "requests.finished") >= 8 && found > 0 && predicted > 1000 &&
	       predicted > 1.5 * found &&
	       get_hit_growth(in, "short.nothing_shared") < 0.2 * predicted &&
	       doctor_report(
		       in, "pool %s: %.0f cached tokens were predicted, but the engines found %.0f",
		       in->name, predicted, found);
}

/* Engines find nothing of prompts that the router believes to be cached. */
bool rule_hash_mismatch(const struct doctor_input *in)
{
	const double predicted = get_hit_growth(in, "reported_predicted_tokens");
	const double none = get_hit_growth(in, "short.nothing_shared");

	return predicted > 1000 && none >= 0.2 * predicted &&
	       doctor_report(
		       in,
		       "pool %s: of %.0f cached tokens predicted, %.0f are of requests for which the engine found none",
		       in->name, predicted, none);
}

/* Requests go to ranks with a smaller overlap than that of another eligible rank. */
bool rule_missed_cache(const struct doctor_input *in)
{
	const double all = get_hit_growth(in, "prompt_tokens");
	const double got = get_hit_growth(in, "achieved_tokens"),
		     best = get_hit_growth(in, "achievable_tokens");

	return all > 10000 && got < 0.5 * best &&
	       doctor_report(
		       in,
		       "pool %s: %.0f %% of the prompt tokens were cached at the chosen ranks, %.0f %% at the best eligible ranks",
		       in->name, 100 * got / all, 100 * best / all);
}

/* ---- prefix table ---- */

bool rule_table_full(const struct doctor_input *in)
{
	const double all = doctor_get_number(in, "prefix.memory_bytes");
	const double used = doctor_get_number(in, "prefix.used_bytes");
	const double out = doctor_get_growth(in, "prefix.evicted_entries");
	const double lost = doctor_get_growth(in, "prefix.dropped");

	if (out + lost == 0 && (all == 0 || used < 0.95 * all))
		return false;
	return doctor_report(
		in,
		"pool %s: the prefix table is full: %.0f %% of its memory used, %.0f entries evicted, %.0f blocks not stored",
		in->name, all > 0 ? 100 * used / all : 0, out, lost);
}
