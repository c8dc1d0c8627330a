/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ROUTE messages: check, hints, hashes, score. A message of one frame is used in place at once; a
 * fragmented one is read by read_dp.c over some turns.
 */
#include "ingress/fragment.h"
#include "ingress/route.h"
#include "lcore/mailbox.h"
#include "lcore/out.h"

#include <string.h>

#include "kvr_frame.h"
#include "kvr_hash.h"
#include "kvr_message.h"

/* ---- hints ---- */

/* The id stays in the memory of the hints. */
static void copy_session(struct job *job, const struct kvr_hints *hints)
{
	job->session = (struct job_session){.action = hints->session.action,
					    .timeout_s = hints->session.timeout_s};
	job->session.key = (struct kvr_session_key){hints->session.id.p, hints->session.id.len, 0};
	if (hints->session.id.len != 0 && job->pool->session_table != NULL)
		kvr_session_key(job->pool->session_table, hints->session.id.p,
				hints->session.id.len, &job->session.key);
}

/* ---- hashes ---- */

enum kvr_code job_hash_buf(struct lcore *lc, struct job *job, uint32_t n_hashes)
{
	job->hash_buf = hashes_get(lc->rt, n_hashes);
	return job->hash_buf != NULL ? KVR_OK : KVR_E_NO_MEMORY;
}

/* Iterator over the multimodal hashes of the hints for lib/hash. */
static bool next_mm(void *arg, struct kvr_hash_mm *out)
{
	struct kvr_mm mm;

	if (!kvr_mm_next(arg, &mm))
		return false;
	*out = (struct kvr_hash_mm){.block = mm.block, .n = mm.n, .hashes = mm.hashes};
	return true;
}

void job_hash_begin(const struct job *job, struct kvr_tlv_iter *mm, struct kvr_hash_stream *stream)
{
	const struct kvr_hints *hints = &job->msg.hints;
	const struct kvr_hash_params params = {
		.seed = kvr_hash_seed(hints->lora.p, hints->lora.len, hints->cache_namespace.p,
				      hints->cache_namespace.len),
		.block_size = job->pool->block_size,
		.eagle = (job->flags & KVR_REQ_F_EAGLE) != 0 || job->pool->eagle,
		.mm_next = hints->n_mm != 0 ? next_mm : NULL,
		.mm_arg = mm,
	};

	*mm = kvr_tlv_begin(hints->tlvs, hints->tlvs_len);
	kvr_hash_stream_init(stream, &params, NULL);
}

/* Find the hashes of a message of one frame: in place, or computed from its tokens. */
static enum kvr_code find_hashes(struct lcore *lc, struct job *job, const struct kvr_message *q)
{
	const uint32_t most = q->fixed.n_tokens / job->pool->block_size;
	struct kvr_hash_stream stream;
	struct kvr_tlv_iter mm;
	enum kvr_code code;

	job->n_hashes = q->fixed.n_hashes;
	job->hashes = q->hashes;
	if (job->n_hashes != 0)
		return KVR_OK;
	code = job_hash_buf(lc, job, most);
	if (code != KVR_OK)
		return code;
	job_hash_begin(job, &mm, &stream);
	if (kvr_hash_stream_add(&stream, q->tokens, q->fixed.n_tokens, NULL, job->hash_buf->sh,
				most) < 0)
		return KVR_E_HINT;
	job->hashes = job->hash_buf->sh;
	job->n_hashes = stream.n_blocks;
	return KVR_OK;
}

/* ---- jobs ---- */

enum kvr_code job_unknown_pool(const struct router *rt, uint32_t id, struct rejection *why)
{
	why->detail[0] = id;
	why->detail[1] = rt->n_pools;
	why->text = rt->pool_names;
	return KVR_E_UNKNOWN_POOL;
}

enum kvr_code job_check(const struct pool *pool, const struct kvr_wire_request *f,
			struct rejection *why)
{
	if (f->n_hashes != 0 && (uint64_t)f->n_hashes * pool->block_size > f->isl)
		return KVR_E_INVALID_REQUEST;
	if (f->isl / pool->block_size <= pool->max_prompt_blocks)
		return KVR_OK;
	why->detail[0] = f->isl / pool->block_size;
	why->detail[1] = pool->max_prompt_blocks;
	why->detail[2] = pool->block_size;
	return KVR_E_PROMPT_TOO_LONG;
}

enum kvr_code job_begin(struct lcore *lc, struct job *job, const struct kvr_wire_hdr *hdr,
			const struct kvr_message *q, const void *raw)
{
	struct kvr_hints *hints = &job->msg.hints;
	enum kvr_code code;

	job->source = hdr->source;
	job->id = hdr->id;
	job->kind = hdr->kind;
	job->flags = q->fixed.flags;
	job->isl = q->fixed.isl;
	/* This lcore will look the name up when the batch is scored. */
	if (job->pool->sched_lcore == lc)
		kvr_flight_prefetch_name(job->pool->requests, job->source, job->id);
	job->msg.book = (job->flags & KVR_REQ_F_BOOK) != 0;
	job->msg.direct = (job->flags & (KVR_REQ_F_DIRECT | KVR_REQ_F_TRACK)) == KVR_REQ_F_DIRECT;
	job->msg.quiet = (job->flags & (KVR_REQ_F_QUIET | KVR_REQ_F_QUERY | KVR_REQ_F_DIRECT |
					KVR_REQ_F_BOOK | KVR_REQ_F_AWAY)) == KVR_REQ_F_QUIET;
	job->deadline_ns = q->fixed.deadline_ms == 0
				   ? 0
				   : lc->now_ns + q->fixed.deadline_ms * UINT64_C(1000000);
	job->msg.req = (struct kvr_sched_req){
		.isl = job->isl,
		.exec_isl = kvr_request_exec_isl(&q->fixed),
		.query_only = (job->flags & KVR_REQ_F_QUERY) != 0,
		.probe = (job->flags & KVR_REQ_F_HEALTH) != 0,
		.phase = (enum kvr_role)q->fixed.phase,
	};
	code = kvr_hints_parse(raw, q->fixed.hints_len, KVR_HINTS_ROUTE, hints, &job->lists);
	if (code == KVR_OK && kvr_hints_say_away(hints) != ((job->flags & KVR_REQ_F_AWAY) != 0))
		code = KVR_E_HINT;
	if (code == KVR_OK)
		copy_session(job, hints);
	if (q->fixed.expected_output_tokens != KVR_NONE32) {
		hints->present |= KVR_HAS_EXPECTED_OUTPUT;
		hints->expected_output_tokens = q->fixed.expected_output_tokens;
	}
	job->tlvs = raw;
	job->tlvs_len = q->fixed.hints_len;
	job->hints_off = q->hints_off;
	job->body_off = q->body_off;
	return code;
}

enum kvr_code job_end(struct lcore *lc, struct job *job, const struct kvr_path *from,
		      uint16_t client_frame)
{
	enum kvr_code code = KVR_OK;

	job->msg.req.sh = job->hashes;
	job->msg.req.n = job->n_hashes;
	if (job->pool->prefill != NULL && job->kind == KVR_ROUTE)
		code = pair_attach(job);
	if (unlikely(code != KVR_OK))
		return code;
	job->client = *from;
	job->client.max_frame = client_frame != 0 ? client_frame : KVR_WIRE_DEF_FRAME;
	job->lcore = lc->index;
	lc->job[lc->n_jobs++] = job;
	return KVR_OK;
}

bool job_compared(const struct job *job)
{
	return job->kind == KVR_ROUTE && !job->msg.req.query_only;
}

enum kvr_code job_add(struct lcore *lc, const struct kvr_path *from, struct rte_mbuf *m,
		      struct rejection *why)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_slice body = {kvr_frame_body(hdr), hdr->frag_len};
	struct kvr_message q;
	enum kvr_code code;
	struct pool *pool;
	struct job *job;

	code = kvr_request_parse_slices(&body, 1, hdr->kind, &q);
	if (unlikely(code != KVR_OK))
		return code;
	pool = pool_by_id(lc->rt, q.fixed.pool);
	if (unlikely(pool == NULL))
		return job_unknown_pool(lc->rt, q.fixed.pool, why);
	code = job_check(pool, &q.fixed, why);
	if (unlikely(code != KVR_OK))
		return code;
	job = job_new(lc, pool);
	if (unlikely(job == NULL))
		return KVR_E_NO_MEMORY;
	code = job_begin(lc, job, hdr, &q, q.hints);
	if (likely(code == KVR_OK))
		code = find_hashes(lc, job, &q);
	if (likely(code == KVR_OK)) /* overlaps with the digest */
		kvr_prefix_prefetch(pool->prefix, job->hashes, job->n_hashes);
	/* Requests that are not remembered need no digest. */
	job->digest = job_compared(job) ? kvr_request_digest(&body, 1) : 0;
	if (likely(code == KVR_OK))
		code = job_end(lc, job, from, q.fixed.client_frame);
	if (unlikely(code != KVR_OK)) {
		job_drop(lc, job);
		return code;
	}
	job->frame = m;
	return KVR_OK;
}

/* ---- scores ---- */

static void job_put(struct lcore *lc, struct job *job)
{
	const struct sched_msg msg = {.type = job->kind == KVR_ROUTE ? MSG_ROUTE : MSG_LOADS,
				      .job = job};

	if (likely(mailbox_put(job->pool, &msg) == 0))
		return;
	out_reject(lc, &job->client, job->kind, job->source, job->id,
		   &(const struct rejection){.code = KVR_E_BUSY});
	frames_count_back(lc, job);
	job_drop(lc, job);
}

/* Score the prefill legs of @pool n jobs. */
static void score_prefill(const struct pool *pool, struct job *const job[], uint32_t n)
{
	struct kvr_prefix_query q[BURST];
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++)
		if (job[i]->pair != NULL)
			q[k++] = (struct kvr_prefix_query){job[i]->hashes, job[i]->n_hashes,
							   job[i]->pair->overlap};
	kvr_prefix_score_burst(pool->prefill->prefix, q, k);
}

void jobs_flush(struct lcore *lc)
{
	struct kvr_prefix_query q[BURST];

	for (uint32_t i = 0, n; i < lc->n_jobs; i += n) {
		struct pool *pool = lc->job[i]->pool;

		/* Consecutive jobs of one pool; with one pool the whole batch. */
		for (n = 0; i + n < lc->n_jobs && n < BURST && lc->job[i + n]->pool == pool; n++) {
			const struct job *job = lc->job[i + n];

			q[n] = (struct kvr_prefix_query){job->hashes, job->n_hashes, job->overlap};
		}
		kvr_prefix_score_burst(pool->prefix, q, n);
		if (pool->prefill != NULL)
			score_prefill(pool, &lc->job[i], n);
	}
	for (uint32_t i = 0; i < lc->n_jobs; i++) {
		lc->job[i]->view = lc->view->number;
		kvr_overlap_pad(lc->job[i]->overlap);
		if (lc->job[i]->pair != NULL)
			kvr_overlap_pad(lc->job[i]->pair->overlap);
		job_put(lc, lc->job[i]);
	}
	lc->n_jobs = 0;
}
