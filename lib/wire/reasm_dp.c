/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_sim.h"
#include "reasm_pvt.h"

#define XXH_INLINE_ALL
#define XXH_NO_STDLIB
#include <xxhash.h>

static uint64_t hash_of(const struct kvr_reasm *r, const void *key, size_t len)
{
	return XXH3_64bits_withSeed(key, len, r->conf.seed);
}

static uint32_t bucket_of(const struct kvr_reasm *r, const void *key, size_t len)
{
	return (uint32_t)hash_of(r, key, len) & r->mask;
}

static uint32_t entry_find(const struct kvr_reasm *r, const struct reasm_key *key, uint32_t bucket)
{
	uint32_t i = r->buckets[bucket];

	while (i != NONE && memcmp(&r->entries[i].key, key, sizeof(*key)) != 0)
		i = r->entries[i].next;
	return i;
}

static uint32_t peer_find(const struct kvr_reasm *r, const struct kvr_peer *peer, uint32_t bucket)
{
	uint32_t i = r->peer_buckets[bucket];

	while (i != NONE && memcmp(&r->peers[i].peer, peer, sizeof(*peer)) != 0)
		i = r->peers[i].next;
	return i;
}

/* The element after @p i in a free list of @p n; @p link is the link of i. */
static uint32_t next_free(uint32_t i, uint32_t fresh, uint32_t n, const uint32_t *link)
{
	if (i != fresh)
		return *link;
	return i + 1 < n ? i + 1 : NONE;
}

/* Take the first of a free list. */
static uint32_t take_free(uint32_t *first, uint32_t *fresh, uint32_t next)
{
	const uint32_t i = *first;

	*fresh += i == *fresh;
	*first = next;
	return i;
}

static uint32_t next_free_page(const struct kvr_reasm *r)
{
	return next_free(r->free_page, r->fresh_page, r->n_pages, &r->pages[r->free_page].next);
}

/* A free peer exists if a free entry exists. */
static uint32_t peer_get(struct kvr_reasm *r, const struct kvr_peer *peer)
{
	const uint32_t bucket = bucket_of(r, peer, sizeof(*peer));
	uint32_t i = peer_find(r, peer, bucket);

	if (i != NONE)
		return i;
	i = take_free(&r->free_peer, &r->fresh_peer,
		      next_free(r->free_peer, r->fresh_peer, r->conf.max_messages,
				&r->peers[r->free_peer].next));
	r->peers[i] = (struct reasm_peer){
		.peer = *peer, .next = r->peer_buckets[bucket], .bucket = bucket, .youngest = NONE};
	r->peer_buckets[bucket] = i;
	return i;
}

static void peer_put(struct kvr_reasm *r, uint32_t i)
{
	struct reasm_peer *p = &r->peers[i];
	uint32_t *link = &r->peer_buckets[p->bucket];

	if (p->messages > 0)
		return;
	while (*link != i)
		link = &r->peers[*link].next;
	*link = p->next;
	p->next = r->free_peer;
	r->free_peer = i;
}

/* Append to the list of its source, as the youngest. */
static void mine_append(struct kvr_reasm *r, uint32_t i)
{
	struct reasm_entry *e = &r->entries[i];
	struct reasm_peer *p = &r->peers[e->peer];

	e->mine_younger = NONE;
	e->mine_older = p->youngest;
	if (p->youngest != NONE)
		r->entries[p->youngest].mine_younger = i;
	p->youngest = i;
}

static void mine_unlink(struct kvr_reasm *r, const struct reasm_entry *e)
{
	if (e->mine_older != NONE)
		r->entries[e->mine_older].mine_younger = e->mine_younger;
	if (e->mine_younger != NONE)
		r->entries[e->mine_younger].mine_older = e->mine_older;
	else
		r->peers[e->peer].youngest = e->mine_older;
}

static uint32_t entry_new(struct kvr_reasm *r, const struct reasm_key *key,
			  const struct kvr_peer *share, uint32_t bucket, uint32_t msg_len)
{
	const uint32_t i = take_free(&r->free_entry, &r->fresh_entry,
				     next_free(r->free_entry, r->fresh_entry, r->conf.max_messages,
					       &r->entries[r->free_entry].next));
	struct reasm_entry *e = &r->entries[i];

	e->key = *key;
	e->bucket = bucket;
	e->next = r->buckets[bucket];
	r->buckets[bucket] = i;
	e->peer = peer_get(r, share);
	r->peers[e->peer].messages++;
	mine_append(r, i);
	e->msg_len = msg_len;
	e->unit = 0;
	e->n_frags = 0;
	e->n_have = 0;
	e->bytes = 0;
	e->tail_off = 0;
	e->since = 0;
	e->younger = NONE;
	e->older = r->youngest;
	if (r->youngest != NONE)
		r->entries[r->youngest].younger = i;
	else
		r->oldest = i;
	r->youngest = i;
	kvr_reasm__quiet_append(r, i, QUIET_FRESH);
	kvr_cell_add(&r->stats.started, 1);
	kvr_cell_add(&r->stats.messages, 1);
	return i;
}

static void page_put(struct kvr_reasm *r, uint32_t page)
{
	r->pages[page].next = r->free_page;
	r->free_page = page;
}

/* Unlink an entry that no longer has pages. */
static void entry_free(struct kvr_reasm *r, uint32_t i)
{
	struct reasm_entry *e = &r->entries[i];
	struct reasm_peer *p = &r->peers[e->peer];
	uint32_t *link = &r->buckets[e->bucket];

	mine_unlink(r, e);
	p->messages--;
	p->frames -= e->n_have;
	p->bytes -= e->bytes;
	peer_put(r, e->peer);
	kvr_cell_sub(&r->stats.bytes, e->bytes);
	kvr_cell_sub(&r->stats.messages, 1);
	while (*link != i)
		link = &r->entries[*link].next;
	*link = e->next;
	kvr_reasm__quiet_unlink(r, i);
	*(e->older != NONE ? &r->entries[e->older].younger : &r->oldest) = e->younger;
	*(e->younger != NONE ? &r->entries[e->younger].older : &r->youngest) = e->older;
	e->next = r->free_entry;
	r->free_entry = i;
}

/* Free a held frame of a dropped message. */
static void drop_frame(struct kvr_reasm *r, void *frame)
{
	r->conf.drop(r->conf.drop_arg, frame);
	kvr_cell_sub(&r->stats.frames, 1);
	kvr_cell_add(&r->stats.dropped_frames, 1);
}

void kvr_reasm__drop(struct kvr_reasm *r, uint32_t i)
{
	struct reasm_entry *e = &r->entries[i];
	const uint32_t n_pages = (e->n_frags + PAGE_SLOTS - 1) / PAGE_SLOTS;

	if (e->tail_off != 0)
		drop_frame(r, e->tail.frame);
	for (uint32_t k = 0; k < n_pages; k++) {
		if (e->page[k] == NONE)
			continue;
		r->pages[e->page[k]].next = r->dead_page;
		r->dead_page = e->page[k];
		r->peers[e->peer].pages--;
	}
	entry_free(r, i);
}

uint32_t kvr_reasm__free(struct kvr_reasm *r, uint32_t most)
{
	const uint32_t may = most < r->may_free ? most : r->may_free;
	uint32_t n = 0;

	while (r->dead_page != NONE && n < may) {
		const uint32_t at = r->dead_page;
		struct reasm_page *p = &r->pages[at];

		for (; p->present != 0 && n < may; p->present &= p->present - 1, n++)
			drop_frame(r, p->slot[__builtin_ctzll(p->present)].frame);
		if (p->present != 0)
			break;
		r->dead_page = p->next;
		page_put(r, at);
	}
	r->may_free -= n;
	return n;
}

/* Check a fragment against those held. @return KVR_REASM_HELD, _DUPLICATE or _REFUSED. */
static enum kvr_reasm_result check_fragment(const struct kvr_reasm *r, const struct reasm_entry *e,
					    const struct kvr_wire_hdr *h)
{
	const bool last = h->frag_off + h->frag_len == h->msg_len;
	const uint32_t unit = e->unit != 0 ? e->unit : last ? 0 : h->frag_len;
	uint32_t place, page;

	if (h->msg_len != e->msg_len)
		return KVR_REASM_REFUSED;
	if (unit == 0) /* a last fragment, and nothing else yet */
		return e->tail_off == 0		    ? KVR_REASM_HELD
		       : e->tail_off == h->frag_off ? KVR_REASM_DUPLICATE
						    : KVR_REASM_REFUSED;
	if (h->frag_off % unit != 0 || (last ? h->frag_len > unit : h->frag_len != unit))
		return KVR_REASM_REFUSED;
	if (e->tail_off != 0 && (e->tail_off % unit != 0 || e->msg_len - e->tail_off > unit))
		return KVR_REASM_REFUSED; /* contradicts the last fragment, held aside */
	if (e->unit == 0)
		return KVR_REASM_HELD;
	place = h->frag_off / unit;
	page = e->page[place / PAGE_SLOTS];
	if (page != NONE && (r->pages[page].present >> (place % PAGE_SLOTS) & 1) != 0)
		return KVR_REASM_DUPLICATE;
	return KVR_REASM_HELD;
}

/* Set the unit, and lay out the page table. */
static void set_unit(struct reasm_entry *e, uint32_t unit)
{
	e->unit = unit;
	e->n_frags = (e->msg_len + unit - 1) / unit;
	memset(e->page, 0xff, (e->n_frags + PAGE_SLOTS - 1) / PAGE_SLOTS * sizeof(e->page[0]));
}

static void put_slot(struct kvr_reasm *r, struct reasm_entry *e, uint32_t off,
		     struct reasm_slot slot)
{
	const uint32_t place = off / e->unit;
	uint32_t *page = &e->page[place / PAGE_SLOTS];

	if (*page == NONE) {
		*page = take_free(&r->free_page, &r->fresh_page, next_free_page(r));
		r->pages[*page].present = 0;
		r->peers[e->peer].pages++;
	}
	r->pages[*page].present |= UINT64_C(1) << (place % PAGE_SLOTS);
	r->pages[*page].slot[place % PAGE_SLOTS] = slot;
}

/* True if the sender may hold this fragment, too. It takes at most two pages (set_unit). */
static bool peer_has_room(const struct kvr_reasm *r, uint32_t entry, const struct kvr_peer *peer,
			  const struct kvr_wire_hdr *h)
{
	const struct kvr_reasm_conf *c = &r->conf;
	const struct reasm_peer *p;
	uint32_t i;

	if (h->msg_len > c->peer_max_bytes)
		return false; /* can never become complete */
	if (c->peer_max_frames == c->max_frames)
		return true; /* no quota: its oldest messages are dropped */
	i = entry != NONE ? r->entries[entry].peer
			  : peer_find(r, peer, bucket_of(r, peer, sizeof(*peer)));
	if (i == NONE)
		return c->peer_max_frames > 0;
	p = &r->peers[i];
	return p->frames < c->peer_max_frames && h->frag_len <= c->peer_max_bytes - p->bytes &&
	       p->pages + 2 <= r->peer_max_pages &&
	       (entry != NONE || p->messages < c->peer_max_messages);
}

/*
 * A source at its bound whose messages are all incomplete would wait until they expire. A fragment
 * of an older message therefore gets the room of the youngest one.
 */
static bool make_room_of_own(struct kvr_reasm *r, uint32_t entry, const struct kvr_peer *peer,
			     const struct kvr_wire_hdr *h)
{
	while (!peer_has_room(r, entry, peer, h)) {
		const uint32_t victim =
			entry != NONE ? r->peers[r->entries[entry].peer].youngest : NONE;

		if (victim == entry || h->msg_len > r->conf.peer_max_bytes)
			return false;
		kvr_reasm__drop(r, victim);
		kvr_cell_add(&r->stats.evicted, 1);
		kvr_reasm__free(r, UINT32_MAX);
	}
	return true;
}

static bool total_has_room(const struct kvr_reasm *r, bool new_entry, uint32_t len)
{
	if (r->stats.frames >= r->conf.max_frames || len > r->conf.max_bytes - r->stats.bytes)
		return false;
	if (r->free_page == NONE || next_free_page(r) == NONE)
		return false; /* two pages */
	return !new_entry || r->free_entry != NONE;
}

/* Drop the oldest messages except `keep`, and free frames, until one more fragment fits. */
static bool make_room(struct kvr_reasm *r, uint32_t keep, uint32_t len)
{
	while (!total_has_room(r, keep == NONE, len)) {
		uint32_t victim = r->oldest;

		/* Dropping a message frees its entry at once, and the rest with its frames. */
		if (r->dead_page != NONE && (keep != NONE || r->free_entry != NONE)) {
			if (kvr_reasm__free(r, PAGE_SLOTS) == 0)
				return false;
			continue;
		}
		if (victim != NONE && victim == keep)
			victim = r->entries[victim].younger;
		if (victim == NONE)
			return false;
		kvr_reasm__drop(r, victim);
		kvr_cell_add(&r->stats.evicted, 1);
	}
	return true;
}

static void deliver_message(struct kvr_reasm *r, uint32_t i, struct kvr_reasm_msg *out)
{
	const struct reasm_entry *e = &r->entries[i];
	struct reasm_peer *p = &r->peers[e->peer];

	for (uint32_t k = 0, off = 0; k < e->n_frags; k++, off += e->unit) {
		const struct reasm_slot *s =
			&r->pages[e->page[k / PAGE_SLOTS]].slot[k % PAGE_SLOTS];

		r->done[k] = (struct kvr_reasm_frag){
			.frame = s->frame,
			.data = s->data,
			.off = off,
			.len = e->msg_len - off < e->unit ? e->msg_len - off : e->unit};
	}
	for (uint32_t k = 0; k < (e->n_frags + PAGE_SLOTS - 1) / PAGE_SLOTS; k++, p->pages--)
		page_put(r, e->page[k]);
	*out = (struct kvr_reasm_msg){.frag = r->done, .n_frags = e->n_frags, .len = e->msg_len};
	kvr_cell_sub(&r->stats.frames, e->n_frags);
	kvr_cell_add(&r->stats.delivered_frames, e->n_frags);
	kvr_cell_add(&r->stats.completed, 1);
	entry_free(r, i);
}

/* The length is part of the name: a message of another length is no copy. */
static uint64_t done_name(uint64_t name, const struct kvr_wire_hdr *h)
{
	return name ^ h->msg_len * UINT64_C(0x9e3779b97f4a7c15);
}

static struct reasm_key key_of(const struct kvr_peer *peer, const struct kvr_wire_hdr *h)
{
	return (struct reasm_key){*peer, h->msg_seq, h->source, h->id, h->handle, h->kind};
}

void kvr_reasm_forget(struct kvr_reasm *r, const struct kvr_peer *peer,
		      const struct kvr_wire_hdr *hdr)
{
	const struct reasm_key key = key_of(peer, hdr);

	kvr_reasm__done_del(r, done_name(hash_of(r, &key, sizeof(key)), hdr));
}

/* Note the arrival of a fragment of a partial message, new or not. */
static void touch_entry(struct kvr_reasm *r, uint32_t i, uint32_t frag_len, uint64_t now)
{
	struct reasm_entry *e = &r->entries[i];

	e->touched = now;
	e->since += KVR_WIRE_MIN_FRAME + frag_len;
	kvr_reasm__quiet_unlink(r, i);
	kvr_reasm__quiet_append(r, i, QUIET_FRESH);
}

/* The last fragment does not contain the unit: the largest is assumed. */
bool kvr_reasm_too_long(const struct kvr_reasm *r, const struct kvr_wire_hdr *h)
{
	const bool last = h->frag_off + h->frag_len == h->msg_len;
	const uint32_t unit = last ? KVR_WIRE_MAX_FRAME - KVR_WIRE_MIN_FRAME : h->frag_len;

	return (h->msg_len + unit - 1) / unit > r->conf.msg_max_frames;
}

static enum kvr_reasm_result refuse_fragment(kvr_cell_t *counter, struct kvr_reasm_msg *out,
					     enum kvr_code why)
{
	KVR_SIM_SOMETIMES(REASM_REFUSED);
	kvr_cell_add(counter, 1);
	out->why = why;
	return KVR_REASM_REFUSED;
}

static void hold_fragment(struct kvr_reasm *r, struct reasm_entry *e, const struct kvr_wire_hdr *h,
			  struct reasm_slot slot)
{
	const bool last = h->frag_off + h->frag_len == h->msg_len;
	struct reasm_peer *p = &r->peers[e->peer];

	if (e->unit == 0 && last) {
		e->tail_off = h->frag_off;
		e->tail = slot;
	} else {
		if (e->unit == 0) {
			set_unit(e, h->frag_len);
			if (e->tail_off != 0)
				put_slot(r, e, e->tail_off, e->tail);
			e->tail_off = 0;
		}
		put_slot(r, e, h->frag_off, slot);
	}
	e->n_have++;
	e->bytes += h->frag_len;
	p->frames++;
	p->bytes += h->frag_len;
	kvr_cell_add(&r->stats.frames, 1);
	kvr_cell_add(&r->stats.bytes, h->frag_len);
	kvr_cell_add(&r->stats.accepted, 1);
}

enum kvr_reasm_result kvr_reasm_add(struct kvr_reasm *r, const struct kvr_peer *peer,
				    const struct kvr_wire_hdr *hdr, const void *data, void *frame,
				    uint64_t now, struct kvr_reasm_msg *out)
{
	const struct reasm_key key = key_of(peer, hdr);
	const struct kvr_peer share = r->conf.share != NULL ? r->conf.share(peer) : *peer;
	uint32_t bucket, i;
	uint64_t name;
	enum kvr_reasm_result verdict = KVR_REASM_HELD;

	if (kvr_frame_whole(hdr)) {
		r->done[0] = (struct kvr_reasm_frag){frame, data, 0, hdr->msg_len};
		*out = (struct kvr_reasm_msg){.frag = r->done, .n_frags = 1, .len = hdr->msg_len};
		return KVR_REASM_COMPLETE;
	}
	kvr_cell_add(&r->stats.fragments, 1);
	name = hash_of(r, &key, sizeof(key));
	bucket = (uint32_t)name & r->mask;
	i = entry_find(r, &key, bucket);
	if (i != NONE)
		verdict = check_fragment(r, &r->entries[i], hdr);
	else if (kvr_reasm__done_find(r, done_name(name, hdr), now))
		verdict = KVR_REASM_DONE;
	if (verdict == KVR_REASM_REFUSED)
		return refuse_fragment(&r->stats.refused_fragment, out, KVR_E_FRAGMENT);
	if (verdict != KVR_REASM_HELD) {
		KVR_SIM_SOMETIMES(REASM_COPY);
		kvr_cell_add(&r->stats.duplicates, 1);
		if (verdict == KVR_REASM_DUPLICATE)
			touch_entry(r, i, hdr->frag_len, now);
		return verdict;
	}
	if (kvr_reasm_too_long(r, hdr))
		return refuse_fragment(&r->stats.refused_large, out, KVR_E_TOO_LARGE);
	if (!make_room_of_own(r, i, &share, hdr) || !make_room(r, i, hdr->frag_len))
		return refuse_fragment(&r->stats.refused_full, out, KVR_E_REASSEMBLY_FULL);
	if (i == NONE)
		i = entry_new(r, &key, &share, bucket, hdr->msg_len);
	hold_fragment(r, &r->entries[i], hdr, (struct reasm_slot){frame, data});
	r->entries[i].progress = now;
	touch_entry(r, i, hdr->frag_len, now);
	if (r->entries[i].n_frags == 0 || r->entries[i].n_have < r->entries[i].n_frags)
		return KVR_REASM_HELD;
	deliver_message(r, i, out);
	if (hdr->kind != KVR_POTENTIAL_LOADS)
		kvr_reasm__done_add(r, done_name(name, hdr), now);
	return KVR_REASM_COMPLETE;
}
