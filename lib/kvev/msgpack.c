/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parser of msgpack heads. It reads each object once, in place, and checks every length against the
 * remaining input.
 */
#include "msgpack_pvt.h"

/* Read the @p n bytes of a number behind its type byte. */
static bool take_number(struct mp_in *in, unsigned int n, uint64_t *v)
{
	if ((size_t)(in->end - in->p) < n)
		return false;
	*v = mp_be(in->p, n);
	in->p += n;
	return true;
}

static bool take_bytes(struct mp_in *in, struct mp *o, enum mp_type type)
{
	if ((uint64_t)(in->end - in->p) < o->u)
		return false;
	o->type = type;
	o->p = (const char *)in->p;
	in->p += o->u;
	return true;
}

static bool read_number(struct mp_in *in, uint8_t b, struct mp *o)
{
	static const uint8_t size[] = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8}; /* ca .. d3 */
	const unsigned int n = size[b - 0xca];
	float f;

	if (!take_number(in, n, &o->u))
		return false;
	if (b == 0xca) {
		const uint32_t u = (uint32_t)o->u;

		memcpy(&f, &u, sizeof(f));
		o->f = (double)f;
		o->type = MP_FLOAT;
	} else if (b == 0xcb) {
		memcpy(&o->f, &o->u, sizeof(o->f));
		o->type = MP_FLOAT;
	} else if (b < 0xd0) {
		o->type = MP_UINT;
	} else {
		const unsigned int shift = 64 - 8 * n;
		const int64_t s = (int64_t)(o->u << shift) >> shift;

		o->u = (uint64_t)s;
		o->type = s < 0 ? MP_INT : MP_UINT;
	}
	return true;
}

/* c4 .. c9: bin and ext with a length; d4 .. df: the rest. */
static bool read_sized(struct mp_in *in, uint8_t b, struct mp *o)
{
	switch (b) {
	case 0xc4:
	case 0xc5:
	case 0xc6:
		return take_number(in, 1u << (b - 0xc4), &o->u) && take_bytes(in, o, MP_BYTES);
	case 0xc7:
	case 0xc8:
	case 0xc9:
		if (!take_number(in, 1u << (b - 0xc7), &o->u))
			return false;
		o->u++; /* plus the type of the ext */
		return take_bytes(in, o, MP_EXT);
	case 0xd4:
	case 0xd5:
	case 0xd6:
	case 0xd7:
	case 0xd8:
		o->u = 1 + (UINT64_C(1) << (b - 0xd4));
		return take_bytes(in, o, MP_EXT);
	case 0xd9:
	case 0xda:
	case 0xdb:
		return take_number(in, 1u << (b - 0xd9), &o->u) && take_bytes(in, o, MP_BYTES);
	default: /* dc .. df */
		o->type = b < 0xde ? MP_ARRAY : MP_MAP;
		return take_number(in, b & 1 ? 4 : 2, &o->u);
	}
}

static bool read_head(struct mp_in *in, struct mp *o)
{
	uint8_t b;

	if (in->p == in->end)
		return false;
	b = *in->p++;
	if (b < 0x80 || b >= 0xe0) {
		o->type = b < 0x80 ? MP_UINT : MP_INT;
		o->u = (uint64_t)(int64_t)(int8_t)b;
		return true;
	}
	if (b < 0xa0) {
		o->type = b < 0x90 ? MP_MAP : MP_ARRAY;
		o->u = b & 15;
		return true;
	}
	if (b < 0xc0) {
		o->u = b & 31;
		return take_bytes(in, o, MP_BYTES);
	}
	if (b >= 0xca && b <= 0xd3)
		return read_number(in, b, o);
	if (b >= 0xc4)
		return read_sized(in, b, o);
	o->type = b == 0xc0 ? MP_NIL : MP_BOOL;
	o->u = b & 1;
	return b != 0xc1;
}

void kvr_kvev__read(struct mp_in *in, struct mp *o)
{
	*o = (struct mp){0};
	/* An element has at least one byte, so a larger count is invalid. */
	if (!read_head(in, o) ||
	    ((o->type == MP_ARRAY || o->type == MP_MAP) && o->u > (uint64_t)(in->end - in->p))) {
		o->type = MP_BAD;
		in->p = in->end;
	}
}

bool kvr_kvev__skip_inside(struct mp_in *in, const struct mp *o)
{
	uint64_t left[MP_DEPTH];
	unsigned int depth = 0;
	struct mp e = *o;

	for (;;) {
		if (e.type == MP_BAD)
			return false;
		if ((e.type == MP_ARRAY || e.type == MP_MAP) && e.u > 0) {
			if (depth == MP_DEPTH)
				return false;
			left[depth++] = e.type == MP_MAP ? 2 * e.u : e.u;
		}
		while (depth > 0 && left[depth - 1] == 0)
			depth--;
		if (depth == 0)
			return true;
		left[depth - 1]--;
		kvr_kvev__read(in, &e);
	}
}

bool kvr_kvev__skip(struct mp_in *in)
{
	struct mp o;

	kvr_kvev__read(in, &o);
	return kvr_kvev__skip_rest(in, &o);
}
