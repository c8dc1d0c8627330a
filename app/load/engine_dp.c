/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"
#include "slice.h"

#include <string.h>

#include "frame.h"
#include "kvr_message.h"

/*
 * A simulated engine. The ranks follow the model of app/engine: one prefill at a time in order of
 * arrival, and decode beside it at a constant time per token. Blocks of the prompt enter the cache
 * when the prefill ends, blocks of the answer when decode ends. Instant engines do all of that in
 * the call that receives DISPATCH.
 *
 * 	IDLE -> QUEUED -> PREFILL -> DECODE -> SENT -> IDLE        (ABORT: to IDLE from any state)
 *
 * A prefill leg decodes one item, which carries the transfer result. A decode leg's prefill takes
 * no time; with a bootstrap room the leg first waits in TRANSFER for the prefill leg (pair_dp.c).
 */

#define GIVE_UP_S 10

/* ---- the cache ---- */

/* Make the first @n blocks resident on the rank and report the change to the router.
 * @return blocks that were resident before. */
static uint32_t store_blocks(struct load *l, uint32_t task, uint32_t n)
{
	const uint32_t rank = load_leg(l, task)->rank;
	const uint64_t *h = load_slot(l, task)->prompt->hashes;
	const struct engine_cache_change c = engine_store(&l->ranks[rank].model, h, n, l->removed);

	if (c.n_removed > 0)
		load_kv_add(l, rank, KVR_KV_REMOVED, NULL, l->removed, c.n_removed);
	if (c.n > c.have)
		load_kv_add(l, rank, KVR_KV_STORED, c.have > 0 ? &h[c.have - 1] : NULL, &h[c.have],
			    c.n - c.have);
	return c.have;
}

/* Blocks of a leg at its end. A prefill engine never has the answer. */
static uint32_t blocks_after(const struct load *l, uint32_t task)
{
	const struct load_prompt *p = l->slots[load_slot_no(task)].prompt;

	return task & LOAD_PREFILL ? p->n_blocks : p->n_after;
}

/* Count the @cached blocks found by a prefill, against the router's prediction. */
static void note_cached(struct load *l, uint32_t task, uint32_t cached)
{
	const struct load_slot *s = load_slot(l, task);
	struct load_leg *leg = load_leg(l, task);
	const uint32_t n = s->prompt->n_blocks;
	uint32_t diff;

	leg->cached = cached < n ? cached : n;
	if (!(s->flags & LOAD_S_MEASURED) || (leg->flags & LOAD_L_DECODE))
		return;
	diff = leg->predicted > leg->cached ? leg->predicted - leg->cached
					    : leg->cached - leg->predicted;
	kvr_stats_add(l->row, LOAD_PROMPT_BLOCKS, n);
	kvr_stats_add(l->row, LOAD_CACHED_BLOCKS, leg->cached);
	if (l->m->slices != NULL) {
		load_slice(l, s)->prompt_blocks += n;
		load_slice(l, s)->cached_blocks += leg->cached;
	}
	kvr_stats_add(l->row, LOAD_PREDICTED_BLOCKS, leg->predicted);
	kvr_stats_add(l->row, LOAD_PREDICTION_ERROR, diff);
	if (leg->predicted > leg->cached)
		kvr_stats_add(l->row, LOAD_PREDICTION_OVER, diff);
	if (diff == 0)
		kvr_stats_inc(l->row, LOAD_PREDICTION_EXACT);
}

/* ---- a rank's work ---- */

static void add_timer(struct load *l, uint32_t task, double cycles)
{
	/* There is room for a timer per leg and for stale ones; each leg has at most one current
	 * timer. */
	load_timers_add(&l->timers, (struct load_timer){l->now + (uint64_t)cycles, task,
							load_leg(l, task)->gen});
}

/* A decode leg computes nothing: its blocks have been transferred. */
static void start_prefill(struct load *l, struct load_rank *rank)
{
	struct engine_task *next = engine_next(&rank->model);
	const struct load_prompt *p;
	struct engine_prompt prompt;
	struct load_leg *leg;
	double cycles;

	if (next == NULL)
		return;
	leg = load_leg(l, next->id);
	p = load_slot(l, next->id)->prompt;
	prompt = (struct engine_prompt){p->hashes, p->n_blocks, l->opt->block_size,
					leg->flags & LOAD_L_DECODE ? 0 : RTE_MAX(p->isl, 1u)};
	cycles = engine_prefill_begin(&rank->model, next, &prompt);
	note_cached(l, next->id, next->blocks);
	leg->estate = LOAD_E_PREFILL;
	add_timer(l, next->id, cycles);
}

static void enqueue_task(struct load *l, uint32_t task)
{
	struct load_leg *leg = load_leg(l, task);
	struct load_rank *rank = &l->ranks[leg->rank];

	leg->task = (struct engine_task){.id = task};
	leg->estate = LOAD_E_QUEUED;
	engine_enqueue(&rank->model, &leg->task);
	start_prefill(l, rank);
}

/* The last item is made. The decode leg may have waited for this prefill leg. */
static void all_made(struct load *l, uint32_t task)
{
	const uint32_t slot = load_slot_no(task);

	load_leg(l, task)->estate = LOAD_E_SENT;
	if (!(task & LOAD_PREFILL))
		return;
	load_pair_finished(l, slot);
	if (l->slots[slot].leg.estate == LOAD_E_TRANSFER && !load_pair_waits(l, slot))
		load_engine_run(l, slot);
}

/* The next item of a decoding leg, or the end of its decode. */
static void next_item(struct load *l, uint32_t task)
{
	const struct load_slot *s = load_slot(l, task);
	struct load_leg *leg = load_leg(l, task);
	struct load_rank *rank = &l->ranks[leg->rank];

	load_item_make(l, task);
	if (leg->made < leg->n_items) {
		add_timer(l, task,
			  (load_item_tokens(s, leg, leg->made) -
			   load_item_tokens(s, leg, leg->made - 1)) *
				  l->speed.decode);
		return;
	}
	store_blocks(l, task, blocks_after(l, task));
	engine_drop(&rank->model, task);
	all_made(l, task);
	start_prefill(l, rank);
}

/* Prefill, decode and end in one step, with one cache lookup. */
static void answer_at_once(struct load *l, uint32_t task)
{
	struct load_leg *leg = load_leg(l, task);

	note_cached(l, task, store_blocks(l, task, blocks_after(l, task)));
	leg->estate = LOAD_E_DECODE;
	while (leg->made < leg->n_items)
		load_item_make(l, task);
	all_made(l, task);
}

void load_engine_run(struct load *l, uint32_t task)
{
	if (l->opt->instant)
		answer_at_once(l, task);
	else
		enqueue_task(l, task);
}

void load_engine_timers(struct load *l)
{
	struct load_timer t;

	for (uint32_t n = 0; n < LOAD_BURST && load_timers_pop(&l->timers, l->now, &t); n++) {
		struct load_leg *leg = load_leg(l, t.slot);
		struct load_rank *rank;

		if (leg->gen != t.gen || load_slot(l, t.slot)->id == 0)
			continue;
		rank = &l->ranks[leg->rank];
		if (leg->estate == LOAD_E_PREFILL) {
			engine_prefill_end(&rank->model);
			leg->estate = LOAD_E_DECODE;
			store_blocks(l, t.slot, load_slot(l, t.slot)->prompt->n_blocks);
			next_item(l, t.slot);
			start_prefill(l, rank);
		} else if (leg->estate == LOAD_E_DECODE) {
			next_item(l, t.slot);
		}
	}
}

static void leave_rank(struct load *l, uint32_t task)
{
	struct load_leg *leg = load_leg(l, task);
	struct load_rank *rank = &l->ranks[leg->rank];

	if (leg->estate == LOAD_E_QUEUED) {
		engine_dequeue(&rank->model, &leg->task);
	} else if (leg->estate == LOAD_E_PREFILL || leg->estate == LOAD_E_DECODE) {
		engine_drop(&rank->model, task);
	}
	leg->estate = LOAD_E_IDLE;
	leg->gen++; /* invalidates its timers */
	if (!l->opt->instant)
		start_prefill(l, rank);
}

void load_engine_drop(struct load *l, uint32_t task)
{
	if (load_leg(l, task)->estate != LOAD_E_IDLE)
		leave_rank(l, task);
}

void load_engine_forget(struct load *l, uint32_t slot)
{
	load_engine_drop(l, slot);
	if (l->pairs != NULL)
		load_engine_drop(l, slot | LOAD_PREFILL);
}

/* ---- frames ---- */

static void on_ack(struct load *l, uint32_t task, uint32_t next_seq)
{
	struct load_leg *leg = load_leg(l, task);

	if (next_seq > leg->acked && next_seq <= leg->made)
		load_items_acked(l, task, next_seq);
	if (leg->estate != LOAD_E_SENT || leg->acked < leg->n_items)
		return;
	leg->estate = LOAD_E_IDLE;
	load_slot_release(l, load_slot_no(task));
}

/* Acknowledged also after the request has ended, as the router repeats ABORT until then. */
static void on_abort(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine, uint32_t task)
{
	const struct kvr_wire_ids ids = load_answer_ids(l, h, engine);

	kvr_stats_inc(l->row, LOAD_ABORTS);
	load_message(l, load_port_of_engine(l, engine), KVR_ABORT_ACK, &ids, 0, NULL);
	if (task == LOAD_NO_SLOT || load_leg(l, task)->handle != h->handle)
		return;
	load_engine_drop(l, task);
	load_slot_release(l, load_slot_no(task));
}

/* The leg of the frame's request at @engine, current or former, or LOAD_NO_SLOT. */
static uint32_t task_at(const struct load *l, const struct kvr_wire_hdr *h, uint32_t engine)
{
	uint32_t task = load_slot_of(l, h->id);

	if (task == LOAD_NO_SLOT || !(l->slots[task].flags & LOAD_S_DISPATCHED))
		return LOAD_NO_SLOT;
	if (l->engines[engine].role == KVR_ROLE_PREFILL)
		task |= LOAD_PREFILL;
	return l->ranks[load_leg_ro(l, task)->rank].engine == engine ? task : LOAD_NO_SLOT;
}

void load_engine_frame(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine)
{
	const uint32_t task = task_at(l, h, engine);

	if (h->kind == KVR_ABORT) {
		on_abort(l, h, engine, task);
		return;
	}
	if (task == LOAD_NO_SLOT) {
		kvr_stats_inc(l->row, LOAD_STALE);
		return;
	}
	if (h->kind == KVR_RESPONSE_ACK)
		on_ack(l, task,
		       ((const struct kvr_wire_response_ack *)kvr_frame_body(h))->next_seq);
	else /* PROGRESS_ACK */
		on_ack(l, task,
		       ((const struct kvr_wire_progress_ack *)kvr_frame_body(h))->next_seq);
}

void load_engine_rejected(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine)
{
	const uint32_t task = task_at(l, h, engine);

	if (task == LOAD_NO_SLOT || load_leg(l, task)->handle != h->handle) {
		kvr_stats_inc(l->row, LOAD_STALE);
		return;
	}
	load_engine_drop(l, task); /* stop the repetitions */
	load_slot_release(l, load_slot_no(task));
}

/* ---- time ---- */

static void check_leg(struct load *l, uint32_t task)
{
	struct load_leg *leg = load_leg(l, task);

	if (leg->acked >= leg->made || leg->estate < LOAD_E_DECODE ||
	    l->now - leg->elast_tx < load_patience(l, leg->etries))
		return;
	leg->etries++;
	if (l->now - leg->progress_at > GIVE_UP_S * l->hz) {
		kvr_stats_inc(l->row, LOAD_ENGINE_GAVE_UP);
		leave_rank(l, task);
		load_slot_release(l, load_slot_no(task));
		return;
	}
	load_items_repeat(l, task);
}

/* End a leg without items by an ERROR item. */
static void fail_leg(struct load *l, uint32_t task)
{
	struct load_leg *leg = load_leg(l, task);

	leg->flags |= LOAD_L_FAILED;
	leg->n_items = 1;
	load_item_make(l, task);
	leg->estate = LOAD_E_SENT;
}

void load_engine_check(struct load *l, uint32_t slot)
{
	if (l->slots[slot].id != 0)
		check_leg(l, slot);
	if (l->pairs == NULL || l->slots[slot].id == 0)
		return;
	check_leg(l, slot | LOAD_PREFILL);
	if (l->slots[slot].id != 0 && load_pair_timed_out(l, slot))
		fail_leg(l, slot);
}
