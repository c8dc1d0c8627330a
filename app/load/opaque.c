/* SPDX-License-Identifier: BSD-3-Clause */
#include "opaque.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "kvr_rand.h"

_Static_assert(sizeof(struct load_transfer) == 56, "no padding: it is compared as bytes");

uint64_t load_transfer_sum(const struct load_transfer *t)
{
	const uint8_t *bytes = (const uint8_t *)t;
	uint64_t sum = 0, word;

	for (size_t at = 0; at < offsetof(struct load_transfer, sum); at += sizeof(word)) {
		memcpy(&word, bytes + at, sizeof(word));
		sum = kvr_mix64(sum ^ word) + at;
	}
	return sum;
}

bool load_transfer_is(const void *bytes, uint32_t len, const struct load_transfer *want)
{
	return len == sizeof(*want) && memcmp(bytes, want, len) == 0;
}

void load_session_name(char out[LOAD_SESSION_NAME], uint64_t tag, uint64_t number)
{
	snprintf(out, LOAD_SESSION_NAME, "%016lx-%lx", tag, number);
}

uint64_t load_session_number(const char *name, uint32_t len, uint64_t tag)
{
	uint64_t number = 0;
	char own[LOAD_SESSION_NAME];

	for (uint32_t i = 17; i < len && len < sizeof(own); i++) {
		const char c = name[i];

		if (c >= '0' && c <= '9')
			number = number << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			number = number << 4 | (uint64_t)(c - 'a' + 10);
		else
			return 0;
	}
	load_session_name(own, tag, number);
	return strlen(own) == len && memcmp(own, name, len) == 0 ? number : 0;
}
