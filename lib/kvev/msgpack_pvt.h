/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_KVEV_MSGPACK_PVT_H
#define KVR_KVEV_MSGPACK_PVT_H

/**
 * @file
 * Msgpack parser without allocation. The msgpack library builds a tree and allocates as many
 * elements as an array claims. This parser keeps nothing, and compares each claim with the
 * remaining bytes.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define MP_DEPTH 32u /* of skipped objects */

enum mp_type {
	MP_BAD = 0, /* end of input, or an invalid type byte */
	MP_NIL,
	MP_BOOL,
	MP_UINT, /* not negative */
	MP_INT,	 /* negative */
	MP_FLOAT,
	MP_BYTES, /* str or bin */
	MP_ARRAY,
	MP_MAP,
	MP_EXT,
};

/** Head of one object; for bytes and ext also the data. */
struct mp {
	enum mp_type type;
	uint64_t u;    /* UINT, BOOL; INT: two's complement; ARRAY, MAP: elements; BYTES: length */
	double f;      /* FLOAT */
	const char *p; /* BYTES */
};

struct mp_in {
	const uint8_t *p, *end;
};

static inline uint64_t mp_be(const uint8_t *p, unsigned int n)
{
	uint64_t v = 0;

	for (unsigned int i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

static inline uint16_t mp_be16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap16(v);
}

static inline uint32_t mp_be32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap32(v);
}

static inline uint64_t mp_be64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap64(v);
}

/** Read the next head, and for bytes all data. MP_BAD leaves the reader at its end. */
void kvr_kvev__read(struct mp_in *in, struct mp *o);

/** Skip one object. @return false: the object is truncated or nested too deeply. */
bool kvr_kvev__skip(struct mp_in *in);

/** Skip the elements of an array or a map whose head was read. */
bool kvr_kvev__skip_inside(struct mp_in *in, const struct mp *o);

/** Skip the elements, if any, of an object whose head was read. */
static inline bool kvr_kvev__skip_rest(struct mp_in *in, const struct mp *o)
{
	return o->type == MP_ARRAY || o->type == MP_MAP ? kvr_kvev__skip_inside(in, o)
							: o->type != MP_BAD;
}

/** Return true if the next object is a bin, which becomes MP_BYTES like a str. */
static inline bool mp_is_bin(const struct mp_in *in)
{
	return in->p < in->end && *in->p >= 0xc4 && *in->p <= 0xc6;
}

static inline bool mp_is(const struct mp *o, const char *text)
{
	const size_t n = strlen(text);

	return o->type == MP_BYTES && o->u == n && memcmp(o->p, text, n) == 0;
}

#endif
