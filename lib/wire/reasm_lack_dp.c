/* SPDX-License-Identifier: BSD-3-Clause */
/* Reassembly: missing fragments of messages without progress, and names of completed messages. */
#include "reasm_pvt.h"

/* ---- the order of last fragments ---- */

void kvr_reasm__quiet_unlink(struct kvr_reasm *r, uint32_t i)
{
	const struct reasm_entry *e = &r->entries[i];
	struct reasm_list *l = &r->quiet[e->quiet];

	*(e->before != NONE ? &r->entries[e->before].behind : &l->first) = e->behind;
	*(e->behind != NONE ? &r->entries[e->behind].before : &l->last) = e->before;
}

void kvr_reasm__quiet_append(struct kvr_reasm *r, uint32_t i, uint32_t list)
{
	struct reasm_list *l = &r->quiet[list];
	struct reasm_entry *e = &r->entries[i];

	e->quiet = list;
	e->behind = NONE;
	e->before = l->last;
	*(l->last != NONE ? &r->entries[l->last].behind : &l->first) = i;
	l->last = i;
}

uint64_t kvr_reasm_quiet_at(const struct kvr_reasm *r)
{
	const uint32_t i = r->quiet[QUIET_FRESH].first;

	if (i == NONE || r->conf.quiet == UINT64_MAX)
		return UINT64_MAX;
	return r->entries[i].touched + r->conf.quiet;
}

/* ---- missing fragments ---- */

/* Bitmap of the missing fragments among 64, from number 64 * page on. */
static uint64_t missing_bits(const struct kvr_reasm *r, const struct reasm_entry *e, uint32_t page)
{
	const uint32_t left = e->n_frags - page * PAGE_SLOTS;
	const uint64_t all = left >= PAGE_SLOTS ? UINT64_MAX : (UINT64_C(1) << left) - 1;

	return e->page[page] == NONE ? all : all & ~r->pages[e->page[page]].present;
}

/* Any held frame; there is at least one. */
static void *any_frame(const struct kvr_reasm *r, const struct reasm_entry *e)
{
	for (uint32_t k = 0; k < (e->n_frags + PAGE_SLOTS - 1) / PAGE_SLOTS; k++)
		if (e->page[k] != NONE && r->pages[e->page[k]].present != 0) {
			const struct reasm_page *p = &r->pages[e->page[k]];

			return p->slot[__builtin_ctzll(p->present)].frame;
		}
	return e->tail.frame;
}

static_assert(offsetof(struct kvr_reasm_lack, word) ==
		      offsetof(struct kvr_reasm_lack, missing) + sizeof(struct kvr_wire_missing),
	      "one body");

static void describe_missing(const struct kvr_reasm *r, const struct reasm_entry *e,
			     struct kvr_reasm_lack *out)
{
	const uint32_t pages = (e->n_frags + PAGE_SLOTS - 1) / PAGE_SLOTS;
	const uint32_t head = KVR_WIRE_MIN_FRAME + sizeof(out->missing);
	uint32_t room = KVR_REASM_LACK_WORDS, first = 0, n = 0;

	/* A fragment of a known unit has 560 bytes: there is room for some words. */
	if (e->since < head + room * 8)
		room = e->since > head + 8 ? (e->since - head) / 8 : 1;
	while (missing_bits(r, e, first) == 0)
		first++;
	for (uint32_t k = first; k < pages && k - first < room; k++) {
		out->word[k - first] = missing_bits(r, e, k);
		if (out->word[k - first] != 0)
			n = k - first + 1;
	}
	out->frame = any_frame(r, e);
	out->missing = (struct kvr_wire_missing){
		.kind = (uint8_t)e->key.kind,
		.n_words = (uint16_t)n,
		.msg_seq = e->key.msg_seq,
		.msg_len = e->msg_len,
		.unit = e->unit,
		.first = first * PAGE_SLOTS,
	};
	out->len = (uint32_t)sizeof(out->missing) + n * 8;
}

bool kvr_reasm_lacking(struct kvr_reasm *r, uint64_t now, struct kvr_reasm_lack *out)
{
	uint32_t i;

	while ((i = r->quiet[QUIET_FRESH].first) != NONE && kvr_reasm_quiet_at(r) <= now) {
		struct reasm_entry *e = &r->entries[i];

		kvr_reasm__quiet_unlink(r, i);
		kvr_reasm__quiet_append(r, i, QUIET_ASKED);
		/* Only the last fragment is held: the unit is unknown. Or MISSING would be longer
		 * than the frames that have come. */
		if (e->unit == 0 || e->since < KVR_WIRE_MIN_FRAME + sizeof(out->missing) + 8)
			continue;
		describe_missing(r, e, out);
		e->since = 0;
		kvr_cell_add(&r->stats.asked, 1);
		return true;
	}
	return false;
}

/* ---- completed messages ---- */

static struct reasm_done *slot_of(const struct kvr_reasm *r, uint64_t name)
{
	/* Other bits than those of the bucket: a flood of one does not affect the other. */
	return &r->lately[(name >> 32) & (r->conf.remember - 1)];
}

bool kvr_reasm__done_find(const struct kvr_reasm *r, uint64_t name, uint64_t now)
{
	const struct reasm_done *d;

	if (r->conf.remember == 0)
		return false;
	d = slot_of(r, name);
	return d->name == name && now - d->at < r->conf.timeout;
}

void kvr_reasm__done_add(struct kvr_reasm *r, uint64_t name, uint64_t now)
{
	if (r->conf.remember != 0)
		*slot_of(r, name) = (struct reasm_done){name, now};
}

void kvr_reasm__done_del(struct kvr_reasm *r, uint64_t name)
{
	if (r->conf.remember != 0 && slot_of(r, name)->name == name)
		slot_of(r, name)->name = 0;
}
