/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

#include <string.h>

#include "frame.h"
#include "kvr_put.h"

/*
 * KV events of a rank wait in a ring of words until the router has acknowledged them:
 *
 * 	{type, n} {parent or 0} {has parent} hash[n]      type 0: skip to the ring's start
 *
 * Go-back-N over a window: on silence or GAP, events are sent again from the first missing one.
 * When the ring has no room for a new event, or the router asks for a dump, the ring is emptied and
 * the whole cache is sent as a dump; new events wait for its end. Only one dump is in progress. It
 * is prepared as a whole, so that its frames can be repeated while the cache changes.
 */

#define RECORD_WORDS  3u
#define WINDOW_WORDS  8192u /* in flight per rank: 64 KiB */
#define FRAMES_A_CALL 16u
#define REPEAT_US     20000u
#define STALE_US      100000u /* a step back is accepted after this time without progress */
#define DUMP_WINDOW   32u
#define DUMP_ID	      (UINT64_C(1) << 63)
#define SKIP	      0u

static uint32_t engine_of(const struct load *l, uint32_t rank)
{
	return l->ranks[rank].engine;
}

/* List a rank whose log has something to send or to wait for. */
static void list_rank(struct load *l, uint32_t rank)
{
	if (l->ranks[rank].log.listed)
		return;
	l->ranks[rank].log.listed = true;
	l->kv_work[l->n_kv_work++] = rank;
}

static void want_dump(struct load *l, uint32_t rank)
{
	struct load_kvlog *log = &l->ranks[rank].log;

	log->dump_wanted = true;
	log->acked_at = log->sent_at = log->head;
	log->acked_id = log->sent_id = log->next_id;
	list_rank(l, rank);
}

/* Room for a record of n hashes at the head, contiguous. NULL: the ring is too full. */
static uint64_t *reserve_words(struct load_kvlog *log, uint32_t n)
{
	const uint32_t need = RECORD_WORDS + n;
	uint32_t at = (uint32_t)(log->head & (log->size - 1));
	uint32_t skip = at + need > log->size ? log->size - at : 0;

	if (log->size - (log->head - log->acked_at) < need + skip)
		return NULL;
	if (skip > 0) {
		log->words[at] = SKIP;
		log->head += skip;
		at = 0;
	}
	log->head += need;
	return &log->words[at];
}

static uint64_t *append_event(struct load_kvlog *log, uint64_t *pos)
{
	uint64_t *w = &log->words[*pos & (log->size - 1)];

	if (*w != SKIP)
		return w;
	*pos += log->size - (*pos & (log->size - 1));
	return &log->words[*pos & (log->size - 1)];
}

static uint32_t record_blocks(const uint64_t *w)
{
	return (uint32_t)(w[0] >> 8);
}

void load_kv_add(struct load *l, uint32_t rank, enum kvr_wire_kv_type type, const uint64_t *parent,
		 const uint64_t hashes[], uint32_t n)
{
	struct load_kvlog *log = &l->ranks[rank].log;

	kvr_stats_add(l->row, type == KVR_KV_STORED ? LOAD_KV_STORED : LOAD_KV_REMOVED, n);
	for (uint32_t i = 0; i < n;) {
		uint32_t part = n - i < l->max_event_blocks ? n - i : l->max_event_blocks;
		uint64_t *w = reserve_words(log, part);

		kvr_stats_inc(l->row, LOAD_KV_EVENTS);
		if (w == NULL) {
			log->next_id++;
			want_dump(l, rank); /* the dump includes this event */
			return;
		}
		w[0] = (uint64_t)part << 8 | type;
		w[1] = parent != NULL ? *parent : 0;
		w[2] = parent != NULL;
		memcpy(&w[RECORD_WORDS], &hashes[i], part * sizeof(*w));
		log->next_id++;
		i += part;
		if (type == KVR_KV_STORED)
			parent = &hashes[i - 1];
	}
	list_rank(l, rank);
}

void load_kv_restart(struct load *l, uint32_t rank)
{
	struct load_kvlog *log = &l->ranks[rank].log;

	log->head = log->acked_at = log->sent_at = 0;
	log->next_id = log->acked_id = log->sent_id = 0;
	log->dump_wanted = false;
	if (l->dump.rank == rank)
		l->dump.rank = LOAD_UNPINNED;
	if (l->ranks[rank].model.cache != NULL && engine_cache_used(l->ranks[rank].model.cache) > 0)
		want_dump(l, rank);
}

/* Send one frame of events from sent_at on. @return false: no event, or no buffer. */
static bool send_events(struct load *l, uint32_t rank)
{
	struct load_kvlog *log = &l->ranks[rank].log;
	const struct kvr_wire_ids ids = load_worker_ids(l, engine_of(l, rank), log->sent_id);
	const struct kvr_wire_kv_events head = {.first_event_id = log->sent_id,
						.dp_rank = l->ranks[rank].dp_rank};
	struct kvr_kv_put put;
	uint8_t *f;

	if (log->sent_id == log->next_id || log->sent_at - log->acked_at > WINDOW_WORDS)
		return false;
	f = load_link_frame(l->link, load_port_of_engine(l, engine_of(l, rank)),
			    (uint16_t)l->max_frame, NULL);
	if (f == NULL || kvr_kv_put_begin(&put, f, l->max_frame, &ids, &head) < 0)
		return false;
	while (log->sent_id < log->next_id) {
		const uint64_t *w = append_event(log, &log->sent_at);

		if (kvr_kv_put_event(&put, (uint8_t)w[0], 0, w[2] ? &w[1] : NULL, &w[RECORD_WORDS],
				     record_blocks(w)) < 0)
			break;
		log->sent_at += RECORD_WORDS + record_blocks(w);
		log->sent_id++;
	}
	load_link_trim(l->link, (uint16_t)kvr_kv_put_end(&put));
	log->last_tx = l->now;
	kvr_stats_inc(l->row, LOAD_KV_FRAMES);
	return true;
}

/* ---- dump ---- */

struct dump_build {
	struct load *l;
	struct kvr_kv_put put;
	struct kvr_wire_kv_events head;
	bool full;
};

static void dump_close(struct dump_build *b)
{
	struct load_dump *d = &b->l->dump;

	d->at[d->n_frames + 1] = d->at[d->n_frames] + (uint32_t)kvr_kv_put_end(&b->put);
	d->n_frames++;
}

static bool dump_open(struct dump_build *b)
{
	struct load_dump *d = &b->l->dump;
	struct kvr_wire_ids ids = load_worker_ids(b->l, engine_of(b->l, d->rank), d->id);

	b->head.first_event_id = d->n_frames;
	b->head.flags = KVR_KV_F_DUMP | (d->n_frames == 0 ? KVR_KV_F_DUMP_BEGIN : 0);
	if (d->n_frames + 1 >= d->frames_room || d->at[d->n_frames] + b->l->max_frame > d->room)
		b->full = true;
	else
		kvr_kv_put_begin(&b->put, &d->bytes[d->at[d->n_frames]], b->l->max_frame, &ids,
				 &b->head);
	return !b->full;
}

static void dump_chain(void *arg, const uint64_t *parent, const uint64_t hashes[], uint32_t n)
{
	struct dump_build *b = arg;

	for (uint32_t i = 0; i < n && !b->full;) {
		uint32_t part = kvr_kv_put_room(&b->put);

		if (part == 0) {
			dump_close(b);
			dump_open(b);
			continue;
		}
		if (part > n - i)
			part = n - i;
		kvr_kv_put_event(&b->put, KVR_KV_STORED, 0, parent, &hashes[i], part);
		i += part;
		parent = &hashes[i - 1];
	}
}

static void dump_begin(struct load *l, uint32_t rank)
{
	struct load_dump *d = &l->dump;
	struct load_kvlog *log = &l->ranks[rank].log;
	struct dump_build b = {.l = l};
	struct kvr_wire_kv_events *last;

	d->rank = rank;
	d->id = DUMP_ID | (d->id + 1);
	d->n_frames = d->sent = d->acked = 0;
	d->at[0] = 0;
	d->moved = l->now;
	d->resume_id = log->next_id;
	log->acked_at = log->sent_at = log->head;
	log->acked_id = log->sent_id = log->next_id;
	log->dump_wanted = false;
	b.head.dp_rank = l->ranks[rank].dp_rank;
	dump_open(&b);
	engine_cache_walk(l->ranks[rank].model.cache, d->scratch, dump_chain, &b);
	if (!b.full)
		dump_close(&b);
	last = (void *)&d->bytes[d->at[d->n_frames - 1] + sizeof(struct kvr_wire_hdr)];
	last->flags |= KVR_KV_F_DUMP_END;
	last->resume_event_id = d->resume_id;
	kvr_stats_inc(l->row, LOAD_KV_DUMPS);
}

static bool dump_frame(struct load *l)
{
	struct load_dump *d = &l->dump;
	uint32_t len = d->at[d->sent + 1] - d->at[d->sent];
	void *f = load_link_frame(l->link, load_port_of_engine(l, engine_of(l, d->rank)),
				  (uint16_t)len, NULL);

	if (f == NULL)
		return false;
	memcpy(f, &d->bytes[d->at[d->sent]], len);
	d->sent++;
	d->last_tx = l->now;
	kvr_stats_inc(l->row, LOAD_KV_FRAMES);
	return true;
}

/* Send frames of the rank's dump. @return false: its log may send events instead. */
static bool flush_dump(struct load *l, uint32_t rank, uint32_t *budget)
{
	struct load_dump *d = &l->dump;

	if (d->rank == LOAD_UNPINNED && l->ranks[rank].log.dump_wanted)
		dump_begin(l, rank);
	if (d->rank != rank)
		return l->ranks[rank].log.dump_wanted;
	if (d->sent > d->acked && l->now - d->last_tx > REPEAT_US * l->us) {
		d->sent = d->acked;
		kvr_stats_inc(l->row, LOAD_KV_REPEATS);
	}
	while (*budget > 0 && d->sent < d->n_frames && d->sent < d->acked + DUMP_WINDOW &&
	       dump_frame(l))
		(*budget)--;
	return true;
}

/* ---- all ranks ---- */

static bool flush_rank(struct load *l, uint32_t rank, uint32_t *budget)
{
	struct load_kvlog *log = &l->ranks[rank].log;

	if (l->engines[engine_of(l, rank)].state != LOAD_W_SERVING)
		return true;
	if (flush_dump(l, rank, budget))
		return true;
	if (log->sent_id > log->acked_id && l->now - log->last_tx > REPEAT_US * l->us) {
		log->sent_at = log->acked_at;
		log->sent_id = log->acked_id;
		kvr_stats_inc(l->row, LOAD_KV_REPEATS);
	}
	while (*budget > 0 && send_events(l, rank))
		(*budget)--;
	return log->acked_id < log->next_id;
}

void load_kv_flush(struct load *l)
{
	uint32_t budget = FRAMES_A_CALL, n = l->n_kv_work;

	for (; n > 0 && budget > 0; n--) {
		uint32_t i = l->kv_turn < l->n_kv_work ? l->kv_turn : 0, rank = l->kv_work[i];

		l->kv_turn = i + 1;
		if (flush_rank(l, rank, &budget))
			continue;
		l->ranks[rank].log.listed = false;
		l->kv_work[i] = l->kv_work[--l->n_kv_work];
		l->kv_turn = i;
	}
}

static void ack_dump(struct load *l, uint32_t rank, const struct kvr_wire_kv_ack *a)
{
	struct load_dump *d = &l->dump;

	/* BUSY does not step back: a full queue reports 0 */
	if (a->next_dump_pos <= d->n_frames &&
	    (a->next_dump_pos > d->acked ||
	     (a->next_dump_pos < d->acked && a->code != KVR_KV_BUSY &&
	      l->now - d->moved >= STALE_US * l->us))) {
		if (a->next_dump_pos < d->acked)
			d->sent = (uint32_t)a->next_dump_pos; /* the router lost its position */
		d->acked = (uint32_t)a->next_dump_pos;
		d->moved = l->now;
	}
	if (d->acked == d->n_frames)
		d->rank = LOAD_UNPINNED;
	list_rank(l, rank);
}

void load_kv_ack(struct load *l, const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_kv_ack *a = kvr_frame_body(h);
	const uint64_t engine = h->source - l->opt->worker_base;
	struct load_kvlog *log;
	uint32_t rank;

	if (engine >= l->n_engines || a->dp_rank >= l->opt->ranks) {
		kvr_stats_inc(l->row, LOAD_CORRUPT);
		return;
	}
	rank = (uint32_t)engine * l->opt->ranks + a->dp_rank;
	log = &l->ranks[rank].log;
	if (a->code == KVR_KV_HELLO) {
		l->engines[engine].state = LOAD_W_HELLO;
		return;
	}
	if (h->epoch != l->engines[engine].router)
		return; /* late: of another incarnation of the router */
	if (l->dump.rank == rank) {
		if (h->id == l->dump.id)
			ack_dump(l, rank, a);
		return;
	}
	if (h->id >= DUMP_ID)
		return; /* of an earlier dump */
	if (a->code == KVR_KV_DUMP_WANTED ||
	    (a->next_event_id < log->acked_id && a->code == KVR_KV_GAP)) {
		if (l->ranks[rank].model.cache != NULL)
			want_dump(l, rank);
		return;
	}
	while (log->acked_id < a->next_event_id && log->acked_id < log->sent_id) {
		const uint64_t *w = append_event(log, &log->acked_at);

		log->acked_at += RECORD_WORDS + record_blocks(w);
		log->acked_id++;
	}
	if (a->code == KVR_KV_GAP && log->sent_id > log->acked_id) {
		log->sent_at = log->acked_at;
		log->sent_id = log->acked_id;
		kvr_stats_inc(l->row, LOAD_KV_REPEATS);
	}
}
