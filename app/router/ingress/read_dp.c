/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Complete fragmented messages. The work that grows with their length (digest, hashing, gathering
 * of hashes, freeing of frames) is done frame by frame within the budget of a turn. Messages are
 * read in the order of completion; one of 4 MB takes about 130 turns, during which everything else
 * continues.
 *
 *   read_start()  list of frames -> queue
 *   read_poll()   first of the queue: fixed part, hints, buffers; then frame by frame; then the job
 *                 joins the lcore's batch, or the client gets a rejection
 *
 * Only the fixed part, the hashes and the hints are gathered, never the body. Frames in the queue
 * count with those on their way to a scheduler.
 */
#include "ingress/fragment.h"
#include "ingress/route.h"
#include "lcore/out.h"

#include <string.h>

#include "kvr_frame.h"

#define READ_TURN_BYTES 32768u /* per ingress lcore: 8 to 15 us */
#define READ_MESSAGE	1024u  /* cost of a message besides its hints */
#define SMALL_FRAMES                                                                               \
	((uint32_t)((SMALL_BUF - sizeof(struct frame_list)) / sizeof(struct rte_mbuf *)))

/* ---- reading ---- */

static const struct kvr_wire_hdr *message_header(const struct frame_list *list)
{
	return rte_pktmbuf_mtod(list->m[0], const struct kvr_wire_hdr *);
}

bool read_may_start(struct lcore *lc, const struct kvr_wire_hdr *hdr)
{
	if (likely(lc->spare != NULL || hdr->msg_len <= SMALL_FRAMES * KVR_WIRE_MIN_FRAGMENT))
		return true;
	return rte_mempool_get(lc->rt->frame_lists, (void **)&lc->spare) == 0;
}

/* A small list suffices for most messages. */
struct frame_list *read_list(struct lcore *lc, uint32_t frames)
{
	struct frame_list *list;

	if (frames <= SMALL_FRAMES && !KVR_SIM_FAULT(FRAME_LIST) &&
	    rte_mempool_get(lc->rt->small_bufs, (void **)&list) == 0)
		return list;
	list = lc->spare;
	lc->spare = NULL;
	return list;
}

static void no_list(struct lcore *lc, const struct kvr_reasm_msg *msg, const struct kvr_path *from)
{
	const struct kvr_wire_hdr h = *rte_pktmbuf_mtod((struct rte_mbuf *)msg->frag[0].frame,
							const struct kvr_wire_hdr *);

	/* The frames were counted as fragments; only the message is rejected here. */
	for (uint32_t i = 0; i < msg->n_frags; i++)
		rte_pktmbuf_free(msg->frag[i].frame);
	out_reject(lc, from, h.kind, h.source, h.id,
		   &(const struct rejection){.code = KVR_E_NO_MEMORY});
}

void read_start(struct lcore *lc, const struct kvr_reasm_msg *msg, const struct kvr_path *from)
{
	struct frame_list *list = read_list(lc, msg->n_frags);
	struct reading *rd = &lc->reading;

	if (unlikely(list == NULL)) {
		no_list(lc, msg, from); /* at most SMALL_FRAMES frames: see read_may_start() */
		return;
	}
	for (list->n = 0; list->n < msg->n_frags; list->n++)
		list->m[list->n] = msg->frag[list->n].frame;
	path_keep(list->m[0], from);
	list->next = NULL;
	*(rd->last != NULL ? &rd->last->next : &rd->first) = list;
	rd->last = list;
	rd->frames += list->n;
}

/* Bytes [off, off + len) in place if one frame contains them all. */
static const void *in_place(const struct reading *rd, uint32_t off, uint32_t len)
{
	const uint32_t k = off / rd->unit;

	if (len == 0 || (off + len - 1) / rd->unit != k)
		return NULL;
	return rte_pktmbuf_mtod_offset(rd->first->m[k], const uint8_t *,
				       sizeof(struct kvr_wire_hdr) + off % rd->unit);
}

/* Check that the padding from @p off to the next multiple of 8 is zero. */
static bool pad_ok(const struct reading *rd, uint32_t off)
{
	static const uint8_t zeros[8];
	uint8_t pad[8];
	const uint32_t n = -off & 7u;

	frames_copy(rd->first->m, rd->unit, off, n, pad);
	return memcmp(pad, zeros, n) == 0;
}

static enum kvr_code gather_hints(struct lcore *lc, struct reading *rd, const void **raw)
{
	const struct kvr_message *q = &rd->q;

	*raw = in_place(rd, q->hints_off, q->fixed.hints_len);
	if (q->fixed.hints_len == 0 || *raw != NULL)
		return KVR_OK;
	rd->j->hint_buf = buf_get(lc->rt, lc->rt->hint_bufs, q->fixed.hints_len);
	if (rd->j->hint_buf == NULL)
		return KVR_E_NO_MEMORY;
	frames_copy(rd->first->m, rd->unit, q->hints_off, q->fixed.hints_len, rd->j->hint_buf);
	*raw = rd->j->hint_buf;
	return KVR_OK;
}

/* Choose where the hashes are stored and what must be read for them. */
static enum kvr_code begin_hashes(struct lcore *lc, struct reading *rd)
{
	const struct kvr_wire_request *f = &rd->q.fixed;
	struct job *job = rd->j;

	rd->tokens = f->n_hashes == 0;
	job->n_hashes = rd->tokens ? f->n_tokens / job->pool->block_size : f->n_hashes;
	job->hashes = in_place(rd, rd->q.hashes_off, f->n_hashes * 8);
	if (job->hashes != NULL)
		return KVR_OK;
	if (rd->tokens)
		job_hash_begin(job, &rd->mm, &rd->stream);
	return job_hash_buf(lc, job, job->n_hashes);
}

static enum kvr_code begin_message(struct lcore *lc, struct reading *rd, struct rejection *why)
{
	const struct kvr_wire_hdr *hdr = message_header(rd->first);
	const void *raw;
	struct pool *pool;
	enum kvr_code code;

	rd->unit = hdr->frag_len;
	rd->len = hdr->msg_len;
	rd->at = sizeof(struct kvr_wire_request);
	code = kvr_request_parse_fixed(kvr_frame_body(hdr), hdr->kind, rd->len, &rd->q);
	if (code != KVR_OK)
		return code;
	if (!pad_ok(rd, rd->q.tokens_off + rd->q.fixed.n_tokens * 4) ||
	    !pad_ok(rd, rd->q.body_off + rd->q.fixed.body_len))
		return KVR_E_FLAGS;
	pool = pool_by_id(lc->rt, rd->q.fixed.pool);
	if (pool == NULL)
		return job_unknown_pool(lc->rt, rd->q.fixed.pool, why);
	code = job_check(pool, &rd->q.fixed, why);
	if (code != KVR_OK)
		return code;
	rd->j = job_new(lc, pool);
	if (rd->j == NULL)
		return KVR_E_NO_MEMORY;
	code = gather_hints(lc, rd, &raw);
	if (code == KVR_OK)
		code = job_begin(lc, rd->j, hdr, &rd->q, raw);
	if (code == KVR_OK)
		code = begin_hashes(lc, rd);
	kvr_digest_begin(&rd->digest);
	return code;
}

/* The part of [from, to) that lies in a piece of @p n bytes at rd->at; NULL: none. */
static const uint8_t *overlap_piece(const struct reading *rd, const uint8_t *p, uint32_t n,
				    uint32_t from, uint32_t to, uint32_t *len)
{
	const uint32_t a = RTE_MAX(from, rd->at), b = RTE_MIN(to, rd->at + n);

	if (a >= b)
		return NULL;
	*len = b - a;
	return p + (a - rd->at);
}

/* Read the rest of the frame at rd->at. */
static enum kvr_code read_frame(struct reading *rd)
{
	const uint32_t n = RTE_MIN(rd->unit - rd->at % rd->unit, rd->len - rd->at);
	const uint8_t *p = in_place(rd, rd->at, n), *part;
	const struct kvr_message *q = &rd->q;
	struct job *job = rd->j;
	uint32_t len;

	if (job_compared(job))
		kvr_digest_add(&rd->digest, p, n);
	if (rd->tokens) {
		part = overlap_piece(rd, p, n, q->tokens_off, q->tokens_off + q->fixed.n_tokens * 4,
				     &len);
		/* Frames carry a multiple of 8 bytes, so no token is split. */
		if (part != NULL && kvr_hash_stream_add(&rd->stream, part, len / 4, NULL,
							job->hash_buf->sh, job->n_hashes) < 0)
			return KVR_E_HINT;
	} else if (job->hashes == NULL) {
		part = overlap_piece(rd, p, n, q->hashes_off, q->hashes_off + q->fixed.n_hashes * 8,
				     &len);
		if (part != NULL)
			memcpy((uint8_t *)job->hash_buf->sh +
				       (rd->at + (uint32_t)(part - p) - q->hashes_off),
			       part, len);
	}
	rd->at += n;
	return KVR_OK;
}

/* Finish the first message of the queue: pass it on or reject it. */
static void end_message(struct lcore *lc, struct reading *rd, struct rejection *why)
{
	struct frame_list *list = rd->first;
	const struct kvr_path from = *path_kept(list->m[0]);
	const struct kvr_wire_hdr h = *message_header(list);
	struct job *job = rd->j;

	if (why->code == KVR_OK) {
		if (job->hashes == NULL)
			job->hashes = job->hash_buf->sh;
		if (rd->tokens)
			job->n_hashes = rd->stream.n_blocks;
		job->digest = job_compared(job) ? kvr_digest_end(&rd->digest, &rd->q.fixed) : 0;
		why->code = job_end(lc, job, &from, rd->q.fixed.client_frame);
	}
	rd->first = list->next;
	if (rd->first == NULL)
		rd->last = NULL;
	rd->frames -= list->n;
	rd->j = NULL;
	rd->open = false;
	if (likely(why->code == KVR_OK)) {
		job->frames = list;
		job->moved = list->n;
		lc->moved[job->pool->number] += list->n;
		return;
	}
	if (job != NULL)
		job_drop(lc, job);
	frames_drop(lc, list);
	out_reject(lc, &from, h.kind, h.source, h.id, why);
}

void read_poll(struct lcore *lc)
{
	struct reading *rd = &lc->reading;
	struct rejection why;

	if (likely(rd->first == NULL))
		return;
	why = (struct rejection){.code = KVR_OK};
	for (uint32_t spent = 0;
	     rd->first != NULL && spent < READ_TURN_BYTES && lc->n_jobs < JOBS_MAX;) {
		if (!rd->open) {
			why = (struct rejection){0};
			why.code = begin_message(lc, rd, &why);
			rd->open = true;
			spent += READ_MESSAGE + rd->q.fixed.hints_len;
		} else {
			spent += rd->unit;
			why.code = read_frame(rd);
		}
		if (why.code != KVR_OK || rd->at == rd->len)
			end_message(lc, rd, &why);
	}
}

void read_drop(struct lcore *lc)
{
	struct reading *rd = &lc->reading;
	struct frame_list *list;

	if (rd->j != NULL)
		job_drop(lc, rd->j);
	while ((list = rd->first) != NULL) {
		rd->first = list->next;
		frames_free(list);
	}
	while (lc->trash != NULL)
		frames_poll(lc);
	*rd = (struct reading){0};
}
