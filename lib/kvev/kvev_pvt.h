/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_KVEV_PVT_H
#define KVR_KVEV_PVT_H

/**
 * @file
 * The decoder: the batch that is open, and arrays for one event. fields.c reads the fields that
 * are lists, numbers.c the tokens among them, decode.c puts events together.
 */

#include "kvr_kvev.h"
#include "kvr_prefetch.h"
#include "msgpack_pvt.h"

#define KVEV_ANY_TAIL SIZE_MAX /* a map: looked at already */

struct kvr_kvev_decoder {
	struct mp_in in; /* what follows in the list of events */
	uint32_t left;	 /* events */
	bool first_bytes;
	size_t tail; /* bytes behind the last event */
	uint64_t *hashes;
	uint32_t *tokens;
	struct kvr_kvev_mm *mm;
	uint32_t cap_hashes, cap_tokens, cap_mm;
	/* The last key of the event's first block that is a salt or a picture, and the object that
	 * it is until kvr_kvev__salt_or_picture(); len 0: there is none. */
	struct kvr_kvev_text either;
	uint32_t either_mm;
	int err; /* -ENOMEM once */
};

/** A name of a block, as a number. */
bool kvr_kvev__name(const struct kvr_kvev_decoder *d, const struct mp *o, uint64_t *name);

/** A run of up to @p n plain numbers of 32 bits; stops at the first that is something else. @p out
 * has room for n. @return how many there were; they are read. */
uint64_t kvr_kvev__numbers(struct mp_in *in, uint64_t n, uint32_t *out);

/** The same; @p wide: with AVX-512 VBMI, which kvr_kvev__wide() says is there. */
uint64_t kvr_kvev__numbers_by(struct mp_in *in, uint64_t n, uint32_t *out, bool wide);

/* ---- wide.c ---- */

#define KVEV_WIDE_LEAST 32u /* tokens: it does nothing for fewer */

bool kvr_kvev__wide(void);

/** Numbers of three and five bytes from @p at on, of at most @p n; stops before another one, and
 * near the end of either. @p out has room for n. @return how many; *at is behind them. */
uint64_t kvr_kvev__tokens_wide(const uint8_t **at, const uint8_t *end, uint64_t n, uint32_t *out);

/** The same of numbers of nine bytes. */
uint64_t kvr_kvev__names_wide(const uint8_t **at, const uint8_t *end, uint64_t n, uint64_t *out);

/* All of these read one object at d->in. @return false: it cannot be read at all; what has a wrong
 * type or value is passed over and noted in ev->fault. */
bool kvr_kvev__hashes(struct kvr_kvev_decoder *d, struct kvr_kvev *ev);
bool kvr_kvev__tokens(struct kvr_kvev_decoder *d, struct kvr_kvev *ev);
bool kvr_kvev__extra_keys(struct kvr_kvev_decoder *d, struct kvr_kvev *ev);
bool kvr_kvev__mm_infos(struct kvr_kvev_decoder *d, struct kvr_kvev *ev);

/** The salt of an event, without the tag that says so. */
void kvr_kvev__salt(struct kvr_kvev *ev, const struct mp *o);

/** At the end of an event whose fields have names: what d->either is. */
void kvr_kvev__salt_or_picture(struct kvr_kvev_decoder *d, struct kvr_kvev *ev);

#endif
