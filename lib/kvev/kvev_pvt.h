/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_KVEV_PVT_H
#define KVR_KVEV_PVT_H

/**
 * @file
 * State of the decoder: the open batch, and arrays for one event. fields.c reads list fields,
 * numbers.c the tokens among them, and decode.c assembles events.
 */

#include "kvr_kvev.h"
#include "kvr_prefetch.h"
#include "msgpack_pvt.h"

#define KVEV_ANY_TAIL SIZE_MAX /* a map: its end was checked when it was opened */

struct kvr_kvev_decoder {
	struct mp_in in; /* rest of the list of events */
	uint32_t left;	 /* events not read yet */
	bool first_bytes;
	size_t tail; /* bytes behind the last event */
	uint64_t *hashes;
	uint32_t *tokens;
	struct kvr_kvev_mm *mm;
	uint32_t cap_hashes, cap_tokens, cap_mm;
	/* Last key of the event's first block that is a salt or an image, and its entry in mm,
	 * until kvr_kvev__salt_or_image() decides. len 0: none. */
	struct kvr_kvev_text either;
	uint32_t either_mm;
	int err; /* -ENOMEM after an allocation failed */
};

/** Convert the name of a block to a number. */
bool kvr_kvev__name(const struct kvr_kvev_decoder *decoder, const struct mp *o, uint64_t *name);

/** Read at most @p n plain 32-bit numbers; stop at the first object of another kind. @p out has
 * room for n. @return the number of values read. */
uint64_t kvr_kvev__numbers(struct mp_in *in, uint64_t n, uint32_t *out);

/** The same; @p wide selects AVX-512 VBMI, which kvr_kvev__has_avx512() must have confirmed. */
uint64_t kvr_kvev__numbers_by(struct mp_in *in, uint64_t n, uint32_t *out, bool wide);

/* ---- avx512.c ---- */

#define KVEV_WIDE_LEAST 32u /* tokens: shorter lists are not worth it */

bool kvr_kvev__has_avx512(void);

/** Read at most @p n numbers of three and five bytes from *at; stop before a number of another
 * size, and near the end of input or output. @p out has room for n. @return the number of values
 * read; *at then points behind them. */
uint64_t kvr_kvev__tokens_wide(const uint8_t **at, const uint8_t *end, uint64_t n, uint32_t *out);

/** The same for numbers of nine bytes. */
uint64_t kvr_kvev__names_wide(const uint8_t **at, const uint8_t *end, uint64_t n, uint64_t *out);

/* Each of these reads one object at d->in. An object with a wrong type or value is skipped and
 * noted in ev->fault. @return false: the object cannot be parsed. */
bool kvr_kvev__hashes(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev);
bool kvr_kvev__tokens(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev);
bool kvr_kvev__extra_keys(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev);
bool kvr_kvev__mm_infos(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev);

/** Set the salt of an event from @p o, without its tag. */
void kvr_kvev__salt(struct kvr_kvev *ev, const struct mp *o);

/** At the end of an event with named fields: decide what d->either is. */
void kvr_kvev__salt_or_image(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev);

#endif
