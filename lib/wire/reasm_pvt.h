/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_REASM_PVT_H
#define KVR_REASM_PVT_H

#include "kvr_reasm.h"

#include <assert.h>
#include <string.h>

#define NONE	   UINT32_MAX
#define PAGE_SLOTS 64u /* bits of the presence mask */
#define MAX_PAGES  ((uint32_t)(KVR_WIRE_MAX_FRAGMENTS + PAGE_SLOTS - 1) / PAGE_SLOTS)

/* Identity of a message, hashed and compared as 56 bytes; no hidden padding. */
struct reasm_key {
	struct kvr_peer peer;
	uint32_t msg_seq;
	uint64_t source;
	uint64_t id;
	uint64_t handle;
	uint64_t kind;
};
static_assert(sizeof(struct reasm_key) == 56, "key has padding");

struct reasm_slot {
	void *frame;
	const void *data;
};

struct reasm_page {
	uint64_t present;
	uint32_t next; /* in the list of free or dead pages */
	struct reasm_slot slot[PAGE_SLOTS];
};

/* Lists of entries, in the order of their last fragments. */
enum { QUIET_FRESH, QUIET_ASKED, QUIET_LISTS };

struct reasm_list {
	uint32_t first, last; /* longest ago first */
};

/* A completed message. */
struct reasm_done {
	uint64_t name; /* hash of its key; 0: none */
	uint64_t at;
};

/* One partial message: 1,000 bytes, of which a two-fragment message touches three lines. */
struct reasm_entry {
	struct reasm_key key;
	uint32_t next; /* in its bucket, or in the free list */
	uint32_t bucket;
	uint32_t older, younger;	   /* age list */
	uint32_t mine_older, mine_younger; /* age list of its source */
	uint32_t before, behind;	   /* in its quiet list */
	uint32_t quiet;			   /* QUIET_FRESH or QUIET_ASKED */
	uint32_t since;			   /* bytes of its frames since the last MISSING */
	uint32_t peer;
	uint32_t msg_len;
	uint32_t unit;	  /* body bytes of every fragment but the last; 0 = not known yet */
	uint32_t n_frags; /* of the whole message, once unit is known */
	uint32_t n_have;
	uint32_t bytes;	   /* held */
	uint32_t tail_off; /* last fragment, kept aside while unit is unknown; 0 = none */
	uint64_t touched;  /* last fragment or copy */
	uint64_t progress; /* last new fragment */
	struct reasm_slot tail;
	uint32_t page[MAX_PAGES]; /* page numbers; NONE = no fragment yet */
};

/* Held by one source. */
struct reasm_peer {
	struct kvr_peer peer;
	uint32_t next;
	uint32_t bucket;
	uint32_t messages, frames, pages;
	uint32_t youngest; /* of its messages */
	uint64_t bytes;
};

struct kvr_reasm {
	struct kvr_reasm_conf conf;
	struct kvr_reasm_stats stats;
	uint32_t mask;		 /* buckets - 1, of both tables */
	uint32_t peer_max_pages; /* sparse messages must not take all pages */
	uint32_t oldest, youngest;
	struct reasm_list quiet[QUIET_LISTS];
	struct reasm_done *lately;
	/* Heads of the free lists. The last element of a list was never used, and its link is not
	 * written: the elements after it follow in order. */
	uint32_t free_entry, free_peer, free_page;
	uint32_t fresh_entry, fresh_peer, fresh_page;
	uint32_t n_pages;
	uint32_t dead_page; /* first page of dropped messages, with frames to be freed */
	uint32_t may_free;  /* frames, until the next kvr_reasm_allow() */
	uint32_t *buckets;
	uint32_t *peer_buckets;
	struct reasm_entry *entries;
	struct reasm_peer *peers;
	struct reasm_page *pages;
	struct kvr_reasm_frag *done;
};

/* Move an entry to the end of one of the quiet lists; unlink it from its own before. */
void kvr_reasm__quiet_unlink(struct kvr_reasm *r, uint32_t i);
void kvr_reasm__quiet_append(struct kvr_reasm *r, uint32_t i, uint32_t list);

/* Recently completed messages, by the 64-bit hash of their key. */
bool kvr_reasm__done_find(const struct kvr_reasm *r, uint64_t name, uint64_t now);
void kvr_reasm__done_add(struct kvr_reasm *r, uint64_t name, uint64_t now);
void kvr_reasm__done_del(struct kvr_reasm *r, uint64_t name);

/* Drop a message: its entry is free, its pages remain to be freed. */
void kvr_reasm__drop(struct kvr_reasm *r, uint32_t i);

/* Free frames of dropped messages, at most @p most, within may_free. @return their
 * number. */
uint32_t kvr_reasm__free(struct kvr_reasm *r, uint32_t most);

#endif
