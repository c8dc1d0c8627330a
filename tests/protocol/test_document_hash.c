/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Section 13.1 of PROTOCOL.md, followed step by step with the secret and the primes that the
 * document prints, against lib/hash.
 */
#include "document.h"
#include "kvr_hash.h"
#include "kvr_test.h"

#include <inttypes.h>

#include <rte_common.h>

static char *doc;

static uint8_t secret[192];
static uint64_t A[4], B[6]; /* from 1 on */

static bool read_secret(void)
{
	const char *p = strstr(doc, "```secret\n");
	uint32_t n = 0;

	if (p == NULL)
		return false;
	for (p += 10; *p != '`'; p += *p == '\n' ? 1 : 2)
		if (*p != '\n') {
			unsigned int byte;

			if (n == sizeof(secret) || sscanf(p, "%2x", &byte) != 1)
				return false;
			secret[n++] = (uint8_t)byte;
		}
	return n == sizeof(secret);
}

static bool read_prime(char letter, uint32_t i, uint64_t *v)
{
	char text[8];
	const char *p = strstr(doc, "### 13.1");

	snprintf(text, sizeof(text), "%c%u = ", letter, i);
	p = p != NULL ? strstr(p, text) : NULL;
	return p != NULL && sscanf(p + strlen(text), "%" SCNx64, v) == 1;
}

static uint64_t read_le(const uint8_t *p, uint32_t n)
{
	uint64_t v = 0;

	while (n > 0)
		v = v << 8 | p[--n];
	return v;
}

static uint64_t avalanche_64(uint64_t h)
{
	h = (h ^ h >> 33) * B[2];
	h = (h ^ h >> 29) * B[3];
	return h ^ h >> 32;
}

static uint64_t avalanche_32(uint64_t h)
{
	h = (h ^ h >> 37) * UINT64_C(0x165667919e3779f9);
	return h ^ h >> 32;
}

static uint64_t fold_128(uint64_t a, uint64_t b)
{
	const unsigned __int128 m = (unsigned __int128)a * b;

	return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static uint64_t rotate_left(uint64_t h, unsigned int n)
{
	return h << n | h >> (64 - n);
}

#define R64(p) read_le(d + (p), 8)
#define R32(p) read_le(d + (p), 4)
#define S64(p) read_le(secret + (p), 8)
#define S32(p) read_le(secret + (p), 4)

static uint64_t mix_16(const uint8_t *d, uint64_t p, uint64_t q, uint64_t seed)
{
	return fold_128(R64(p) ^ (S64(q) + seed), R64(p + 8) ^ (S64(q + 8) - seed));
}

static uint64_t hash_up_to_16(const uint8_t *d, uint64_t n, uint64_t seed)
{
	uint64_t h, t, a, b;

	if (n == 0)
		return avalanche_64(seed ^ S64(56) ^ S64(64));
	if (n <= 3) {
		const uint32_t c = (uint32_t)(d[0] << 16 | (uint32_t)d[n / 2] << 24 | d[n - 1] |
					      (uint32_t)n << 8);

		return avalanche_64(c ^ ((S32(0) ^ S32(4)) + seed));
	}
	if (n <= 8) {
		t = seed ^ (uint64_t)__builtin_bswap32((uint32_t)seed) << 32;
		h = R32(n - 4) + (R32(0) << 32);
		h ^= (S64(8) ^ S64(16)) - t;
		h ^= rotate_left(h, 49) ^ rotate_left(h, 24);
		h *= UINT64_C(0x9fb21c651e98df25);
		h ^= (h >> 35) + n;
		h *= UINT64_C(0x9fb21c651e98df25);
		return h ^ h >> 28;
	}
	a = R64(0) ^ ((S64(24) ^ S64(32)) + seed);
	b = R64(n - 8) ^ ((S64(40) ^ S64(48)) - seed);
	return avalanche_32(n + __builtin_bswap64(a) + b + fold_128(a, b));
}

static uint64_t hash_up_to_240(const uint8_t *d, uint64_t n, uint64_t seed)
{
	uint64_t h = n * B[1];

	if (n <= 128) {
		for (uint64_t i = 0; i <= (n - 1) / 32; i++)
			h += mix_16(d, 16 * i, 32 * i, seed) +
			     mix_16(d, n - 16 * (i + 1), 32 * i + 16, seed);
		return avalanche_32(h);
	}
	for (uint64_t i = 0; i < 8; i++)
		h += mix_16(d, 16 * i, 16 * i, seed);
	h = avalanche_32(h);
	for (uint64_t i = 8; i < n / 16; i++)
		h += mix_16(d, 16 * i, 16 * (i - 8) + 3, seed);
	return avalanche_32(h + mix_16(d, n - 16, 119, seed));
}

static void add_stripe(const uint8_t *d, const uint8_t *s, uint64_t acc[8])
{
	for (uint32_t i = 0; i < 8; i++) {
		const uint64_t v = R64(8 * i), k = v ^ read_le(s + 8 * i, 8);

		acc[i ^ 1] += v;
		acc[i] += (k & UINT32_MAX) * (k >> 32);
	}
}

static uint64_t hash_above_240(const uint8_t *d, uint64_t n, uint64_t seed)
{
	uint64_t acc[8] = {A[3], B[1], B[2], B[3], B[4], A[2], B[5], A[1]}, h = n * B[1], v;
	uint8_t s[192];

	for (uint32_t i = 0; i < 192; i += 8) {
		v = S64(i) + (i % 16 == 0 ? seed : -seed);
		for (uint32_t k = 0; k < 8; k++)
			s[i + k] = (uint8_t)(v >> 8 * k);
	}
	for (uint64_t j = 0; j < (n - 1) / 64; j++) {
		add_stripe(d + 64 * j, s + 8 * (j % 16), acc);
		for (uint32_t i = 0; j % 16 == 15 && i < 8; i++)
			acc[i] = (acc[i] ^ acc[i] >> 47 ^ read_le(s + 128 + 8 * i, 8)) * A[1];
	}
	add_stripe(d + n - 64, s + 121, acc);
	for (uint32_t i = 0; i < 8; i += 2)
		h += fold_128(acc[i] ^ read_le(s + 11 + 8 * i, 8),
			      acc[i + 1] ^ read_le(s + 19 + 8 * i, 8));
	return avalanche_32(h);
}

static uint64_t by_the_document(const uint8_t *d, uint64_t n, uint64_t seed)
{
	return n <= 16	  ? hash_up_to_16(d, n, seed)
	       : n <= 240 ? hash_up_to_240(d, n, seed)
			  : hash_above_240(d, n, seed);
}

static void the_hash_is_that_of_the_document(void)
{
	uint8_t bytes[2200];
	uint32_t bad = 0;

	CU_ASSERT_TRUE_FATAL(read_secret());
	for (uint32_t i = 1; i < 6; i++)
		CU_ASSERT_TRUE_FATAL((i > 3 || read_prime('A', i, &A[i])) &&
				     read_prime('B', i, &B[i]));
	for (uint32_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 131 + (i >> 8));
	for (uint32_t n = 0; n < sizeof(bytes); n++)
		bad += by_the_document(bytes, n, KVR_HASH_SEED) != kvr_hash_bytes(bytes, n);
	CU_ASSERT_EQUAL(bad, 0);
	for (uint32_t n = 1; n < 256; n++) { /* names: seeds 0 and 1 */
		CU_ASSERT_EQUAL(kvr_hash_seed((char *)bytes, n, NULL, 0),
				KVR_HASH_SEED + by_the_document(bytes, n, 0));
		CU_ASSERT_EQUAL(kvr_hash_seed(NULL, 0, (char *)bytes, n),
				KVR_HASH_SEED + by_the_document(bytes, n, 1));
	}
}

/* ---- the rows of short blocks, and of names ---- */

struct vector {
	const char *input;
	uint32_t block_size, first, last; /* tokens */
	const char *lora, *ns;
	uint64_t mm[2];
	uint32_t n_mm;
	uint32_t n_lbh; /* values to show: LBHs, then sh from the first-th on */
	uint32_t sh_from, sh_to;
	bool seed;
};

static const struct vector vectors[] = {
	{"B=4, tokens 1..12: LBH[0], LBH[1], LBH[2]", 4, 1, 12, .n_lbh = 3},
	{"the same: SH[0], SH[1], SH[2]", 4, 1, 12, .sh_to = 3},
	{"B=4, tokens 0..3: LBH[0]", 4, 0, 3, .n_lbh = 1},
	{"B=16, tokens 0..31: LBH[0], LBH[1], SH[1]", 16, 0, 31, .n_lbh = 2, .sh_from = 1,
	 .sh_to = 2},
	{"B=64, tokens 0..63: LBH[0]", 64, 0, 63, .n_lbh = 1},
	{"B=2, tokens 0..5: LBH[0], LBH[1], LBH[2]", 2, 0, 5, .n_lbh = 3},
	{"B=2, tokens 0..3, multimodal hash 42 in block 0: LBH[0], LBH[1]", 2, 0, 3, .mm = {42},
	 .n_mm = 1, .n_lbh = 2},
	{"B=4, tokens 0..3, multimodal hashes 7 and 3 in block 0", 4, 0, 3, .mm = {7, 3}, .n_mm = 2,
	 .n_lbh = 1},
	{"LoRA `adapter-a`: seed; LBH[0] of tokens 0..3, B=4", 4, 0, 3, .lora = "adapter-a",
	 .n_lbh = 1, .seed = true},
	{"namespace `tenant-a`: seed; LBH[0] of tokens 0..3, B=4", 4, 0, 3, .ns = "tenant-a",
	 .n_lbh = 1, .seed = true},
};

static bool next_mm(void *arg, struct kvr_hash_mm *out)
{
	const struct vector **v = arg;

	if (*v == NULL || (*v)->n_mm == 0)
		return false;
	*out = (struct kvr_hash_mm){.block = 0, .n = (*v)->n_mm, .hashes = (*v)->mm};
	*v = NULL;
	return true;
}

static void vector_line(const struct vector *v, char *line, size_t cap)
{
	const struct vector *left = v;
	const uint32_t n = v->last - v->first + 1;
	const struct kvr_hash_params p = {
		.seed = kvr_hash_seed(v->lora, v->lora != NULL ? (uint32_t)strlen(v->lora) : 0,
				      v->ns, v->ns != NULL ? (uint32_t)strlen(v->ns) : 0),
		.block_size = v->block_size,
		.mm_next = next_mm,
		.mm_arg = &left};
	uint32_t tokens[64];
	uint64_t lbh[64], sh[64];
	int len = snprintf(line, cap, "\n| %s |", v->input);
	const char *comma = "";

	for (uint32_t i = 0; i < n; i++)
		tokens[i] = v->first + i;
	CU_ASSERT_EQUAL(kvr_hash_tokens(&p, tokens, n, lbh, sh, 64), (int)(n / v->block_size));
	if (v->seed) {
		len += snprintf(line + len, cap - (size_t)len, " %" PRIu64, p.seed);
		comma = ",";
	}
	for (uint32_t i = 0; i < v->n_lbh; i++, comma = ",")
		len += snprintf(line + len, cap - (size_t)len, "%s %" PRIu64, comma, lbh[i]);
	for (uint32_t i = v->sh_from; i < v->sh_to; i++, comma = ",")
		len += snprintf(line + len, cap - (size_t)len, "%s %" PRIu64, comma, sh[i]);
	snprintf(line + len, cap - (size_t)len, " |\n");
}

static void short_blocks_have_their_hashes(void)
{
	char line[300];

	for (size_t i = 0; i < RTE_DIM(vectors); i++) {
		vector_line(&vectors[i], line, sizeof(line));
		if (strstr(doc, line) == NULL)
			fprintf(stderr, "missing:%s", line);
		CU_ASSERT_PTR_NOT_NULL(strstr(doc, line));
	}
	snprintf(line, sizeof(line),
		 "\n| XXH3 of the 9 bytes `test data`, seed %u | %" PRIu64 " |\n",
		 (unsigned int)KVR_HASH_SEED, kvr_hash_bytes("test data", 9));
	CU_ASSERT_PTR_NOT_NULL(strstr(doc, line));
}

int main(int argc, char **argv)
{
	CU_TestInfo tests[] = {
		KVR_CASE(the_hash_is_that_of_the_document),
		KVR_CASE(short_blocks_have_their_hashes),
		CU_TEST_INFO_NULL,
	};

	doc = argc == 2 ? document_read(argv[1]) : NULL;
	return doc != NULL ? kvr_test_run("document-hash", tests) : 1;
}
