/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_reason.h"

struct kvr_reason kvr_reason_init(char *p, uint32_t cap)
{
	p[0] = '\0';
	return (struct kvr_reason){p, 0, cap};
}

static void put_char(struct kvr_reason *t, char c)
{
	if (t->n + 1 >= t->cap)
		return;
	t->p[t->n++] = c;
	t->p[t->n] = '\0';
}

void kvr_reason_say(struct kvr_reason *t, const char *text)
{
	while (*text != '\0')
		put_char(t, *text++);
}

void kvr_reason_count(struct kvr_reason *t, const char *text, uint64_t n)
{
	char digits[24], *d = digits + sizeof(digits) - 1;

	*d = '\0';
	do {
		*--d = (char)('0' + n % 10);
		n /= 10;
	} while (n != 0);
	kvr_reason_say(t, text);
	kvr_reason_say(t, d);
}

void kvr_reason_quote(struct kvr_reason *t, const void *from, uint32_t len)
{
	const uint8_t *b = from;

	for (uint32_t i = 0; i < len && b[i] != '\n' && b[i] != '\r' && b[i] != '\0'; i++)
		put_char(t, b[i] >= ' ' && b[i] < 0x7f ? (char)b[i] : '?');
}
