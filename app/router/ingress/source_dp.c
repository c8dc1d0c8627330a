/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits of one source address at an ingress lcore; lib/source defines a source. Sources with a
 * valid cookie have a table of their own, so that forged addresses can neither use up their rates
 * nor evict them.
 */
#include "ingress/overload.h"
#include "ingress/source.h"
#include "lcore/out.h"

#include "kvr_frame.h"

static const struct source_rules *rules_of(const struct lcore *lc, const struct kvr_path *from)
{
	return rules_of_port(lc->rt, from->port);
}

/* @p excess: rejections to count for the source if the bucket is empty. */
static bool take_token(struct lcore *lc, const struct kvr_path *from, enum kvr_source_bucket b,
		       uint32_t excess)
{
	const struct kvr_source_rate *r = &rules_of(lc, from)->rate[b];
	struct kvr_source *source;

	if (r->each_ns == 0)
		return true;
	source = kvr_source_get(lc->sources, kvr_source_key(from), lc->now_ns);
	if (likely(kvr_source_take(source, b, r, lc->now_ns)))
		return true;
	source->rejected += excess;
	return false;
}

bool source_control(struct lcore *lc, const struct kvr_path *from)
{
	return take_token(lc, from, KVR_SOURCE_CONTROL, 1);
}

/* Later fragments carry no cookie: the source counts as proven if it showed a valid one recently.
 */
static struct kvr_source *source_of_fragment(struct lcore *lc, struct kvr_source_table *t,
					     uint64_t key)
{
	if (t == lc->proven && kvr_source_find(t, key, lc->now_ns) == NULL)
		t = lc->sources;
	return kvr_source_get(t, key, lc->now_ns);
}

enum kvr_code source_route(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct source_rules *rules = rules_of(lc, from);
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	struct kvr_source_table *t = rules->cookie ? lc->proven : lc->sources;
	const uint64_t key = kvr_source_key(from);
	struct port_load *load = &lc->load[from->port];
	const bool first = hdr->frag_off == 0;
	struct kvr_source *source;

	if (likely(first)) {
		struct kvr_wire_request *q = rte_pktmbuf_mtod_offset(m, void *, sizeof(*hdr));

		if (rules->cookie &&
		    unlikely(!kvr_cookie_ok(&lc->rt->cookie_key, from, lc->now_ns, q->worker)))
			return KVR_E_COOKIE;
		q->worker = 0; /* from here on, the field belongs to the router */
		source = kvr_source_get(t, key, lc->now_ns);
	} else {
		source = source_of_fragment(lc, t, key);
	}
	kvr_source_count(t, source, lc->now_ns);
	if (first && unlikely(!kvr_source_take(source, KVR_SOURCE_REQUESTS,
					       &rules->rate[KVR_SOURCE_REQUESTS], lc->now_ns))) {
		source->rejected++;
		return KVR_E_RATE_LIMITED;
	}
	if (unlikely(load->overloaded) && !overload_lets(lc, load, t, source, hdr)) {
		source->rejected++;
		return KVR_E_BUSY;
	}
	return KVR_OK;
}

/* The configured rate, but for rounding. */
static uint64_t per_s(const struct kvr_source_rate *r)
{
	return r->each_ns != 0 ? (UINT64_C(1000000000) + r->each_ns / 2) / r->each_ns : 0;
}

void source_reject(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
		   enum kvr_code code)
{
	struct rejection why = {.code = code};

	if (code == KVR_E_COOKIE)
		why.detail[0] = kvr_cookie(&lc->rt->cookie_key, from, lc->now_ns);
	if (code == KVR_E_RATE_LIMITED)
		why.detail[1] = per_s(&rules_of(lc, from)->rate[KVR_SOURCE_REQUESTS]);
	source_reject_as(lc, m, from, &why);
}

/* Answer within the source's rate of answers; @p excess as in take_token(). */
static void refuse_within(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
			  const struct rejection *why, uint32_t excess)
{
	if (take_token(lc, from, KVR_SOURCE_ANSWERS, excess)) {
		source_reject_passed(lc, m, from, why);
		return;
	}
	in_count(lc, IN_REJECTION_SUPPRESSED);
	source_reject_silent(lc, m, why->code);
}

void source_reject_as(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
		      const struct rejection *why)
{
	if (why->code == KVR_E_RATE_LIMITED) /* counted by source_route() */
		refuse_within(lc, m, from, why, 0);
	else if (!kvr_code_retryable(why->code))
		refuse_within(lc, m, from, why, 1);
	else
		source_reject_passed(lc, m, from, why);
}

void source_shed(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct rejection why = {.code = KVR_E_BUSY};

	refuse_within(lc, m, from, &why, 0); /* counted by source_route() */
}

void source_reject_passed(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
			  const struct rejection *why)
{
	in_count(lc, IN_REJECTED);
	out_reject_frame(lc, m, from, why);
}

void source_reject_silent(struct lcore *lc, struct rte_mbuf *m, enum kvr_code code)
{
	in_count(lc, IN_REJECTED);
	kvr_stats_inc(lc->reject, code);
	rte_pktmbuf_free(m);
}
