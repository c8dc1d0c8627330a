/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Digests with the processor's rounds of AES: an instruction for each 16 bytes.
 *
 *   lane i = round(lane i) ^ bytes [16 i, 16 i + 16) of each chunk: each round spreads the earlier
 *            bytes further; eight lanes, as a round takes four cycles
 *   end    = all lanes, the length and the fixed part, through one lane; then three rounds, after
 *            which each bit depends on all
 */

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("aes,avx"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("aes,avx")
#endif

#include "digest_pvt.h"

#include <string.h>

#include <immintrin.h>

#define LANES 8u
#define CHUNK (LANES * 16u)

struct aes {
	__m128i lane[LANES];
	uint8_t rest[CHUNK]; /* of an incomplete chunk; padded with zeros at the end */
	uint64_t len;
};

_Static_assert(sizeof(struct aes) <= KVR_DIGEST_BYTES, "state does not fit");
_Static_assert(sizeof(struct kvr_wire_request) >= 16, "a block or more");

static inline __m128i load_block(const void *p)
{
	return _mm_loadu_si128(p);
}

/* Lanes start with different values, or exchanged blocks would give the same digest. */
static inline void start_lanes(__m128i lane[])
{
	for (uint32_t i = 0; i < LANES; i++)
		lane[i] = _mm_set_epi64x(0x243F6A8885A308D3, (int64_t)i + 1);
}

/* @return the number of bytes left, less than a chunk. */
static inline uint32_t add_chunks(__m128i lane[], const uint8_t *p, uint32_t len)
{
	for (; len >= CHUNK; len -= CHUNK, p += CHUNK)
		for (uint32_t i = 0; i < LANES; i++)
			lane[i] = _mm_aesenc_si128(lane[i], load_block(p + (size_t)i * 16));
	return len;
}

static inline __m128i join_lanes(const __m128i lane[], uint64_t len)
{
	__m128i x = _mm_set_epi64x(0, (int64_t)len);

	for (uint32_t i = 0; i < LANES; i++)
		x = _mm_aesenc_si128(x, lane[i]);
	return x;
}

static inline uint64_t finish_digest(__m128i x, const struct kvr_wire_request *fixed)
{
	const __m128i odd = _mm_set1_epi64x(0x13198A2E03707344);
	const uint8_t *p = (const uint8_t *)fixed;

	for (size_t i = 0; i + 16 <= sizeof(*fixed); i += 16)
		x = _mm_aesenc_si128(x, load_block(p + i));
	x = _mm_aesenc_si128(x,
			     load_block(p + sizeof(*fixed) - 16)); /* the last, incomplete block */
	for (uint32_t i = 0; i < 3; i++)
		x = _mm_aesenc_si128(x, odd);
	return (uint64_t)_mm_cvtsi128_si64(x);
}

bool kvr_wire__aes(void)
{
	return __builtin_cpu_supports("aes") && __builtin_cpu_supports("avx");
}

uint64_t kvr_wire__aes_digest(const struct kvr_wire_request *fixed, const void *p, uint32_t len)
{
	__m128i lane[LANES];
	uint8_t last[CHUNK];
	uint32_t rest;

	start_lanes(lane);
	rest = add_chunks(lane, p, len);
	if (rest != 0) {
		memset(last, 0, sizeof(last));
		memcpy(last, (const uint8_t *)p + (len - rest), rest);
		add_chunks(lane, last, CHUNK);
	}
	return finish_digest(join_lanes(lane, len), fixed);
}

void kvr_wire__aes_begin(struct kvr_digest *d)
{
	struct aes *a = (struct aes *)d->state;

	start_lanes(a->lane);
	a->len = 0;
}

void kvr_wire__aes_add(struct kvr_digest *d, const void *bytes, uint32_t len)
{
	struct aes *a = (struct aes *)d->state;
	const uint32_t had = a->len % CHUNK, fit = had != 0 ? CHUNK - had : 0;
	const uint8_t *p = bytes;
	uint32_t rest;

	a->len += len;
	if (len < fit) {
		memcpy(a->rest + had, p, len);
		return;
	}
	if (fit != 0) {
		memcpy(a->rest + had, p, fit);
		add_chunks(a->lane, a->rest, CHUNK);
		p += fit;
		len -= fit;
	}
	rest = add_chunks(a->lane, p, len);
	memcpy(a->rest, p + (len - rest), rest);
}

uint64_t kvr_wire__aes_end(const struct kvr_digest *d, const struct kvr_wire_request *fixed)
{
	struct aes a = *(const struct aes *)d->state;
	const uint32_t had = a.len % CHUNK;

	if (had != 0) {
		memset(a.rest + had, 0, CHUNK - had);
		add_chunks(a.lane, a.rest, CHUNK);
	}
	return finish_digest(join_lanes(a.lane, a.len), fixed);
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
