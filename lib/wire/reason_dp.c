/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_reason.h"

#include <stddef.h>

#include "kvr_types.h"

static const char *const words[KVR_E_MAX] = {
	[KVR_OK] = "nothing is wrong",
	[KVR_E_VERSION] = "another version of the protocol",
	[KVR_E_KIND] = "no message that this side takes",
	[KVR_E_LENGTH] = "lengths disagree",
	[KVR_E_FRAGMENT] = "a fragment that does not fit its message",
	[KVR_E_TOO_LARGE] = "it is larger than allowed",
	[KVR_E_REASSEMBLY_FULL] = "no room to put messages in fragments together",
	[KVR_E_HINT] = "a hint that is not legal",
	[KVR_E_FLAGS] = "flags that nobody knows, or reserved bytes that are not 0",
	[KVR_E_NOT_ALLOWED] = "this address may not send this",
	[KVR_E_COOKIE] = "the cookie is missing, too old or of another address",
	[KVR_E_RATE_LIMITED] = "more requests a second than a source may send",
	[KVR_E_SOURCE_LIMIT] = "this source has its share",
	[KVR_E_UNKNOWN_POOL] = "no such pool",
	[KVR_E_EMPTY_PROMPT] = "the prompt has no tokens",
	[KVR_E_PROMPT_TOO_LONG] = "the prompt has more blocks than the pool takes",
	[KVR_E_INVALID_OVERRIDE] = "an override with a field or a value that is not legal",
	[KVR_E_UNKNOWN_POLICY_CLASS] = "no such policy class",
	[KVR_E_INVALID_REQUEST] = "fields contradict one another",
	[KVR_E_UNKNOWN_REQUEST] = "the router does not know this request",
	[KVR_E_ENDED] = "the request has ended",
	[KVR_E_INVALID_WEIGHT] = "a number that is not finite",
	[KVR_E_NO_ENDPOINTS] = "no worker may take it",
	[KVR_E_ALL_OVERLOADED] = "all workers that may take it are overloaded",
	[KVR_E_PINNED_NOT_ALLOWED] = "the pinned worker is not among the allowed ones",
	[KVR_E_PINNED_OVERLOADED] = "the pinned worker is overloaded",
	[KVR_E_DP_RANK_REQUIRED] =
		"the pinned worker is not known, or has several ranks: say which",
	[KVR_E_WORKER_ID_REQUIRED] = "mode direct: the request must name its worker",
	[KVR_E_QUEUE_REJECTED] = "the queue is at a limit",
	[KVR_E_NOT_ACTIVATED] = "the prefill pool is not active",
	[KVR_E_DUPLICATE_REQUEST] = "another request with this id is live",
	[KVR_E_BUSY] = "a queue inside the router is full",
	[KVR_E_NO_MEMORY] = "the router has no memory left for it",
	[KVR_E_DISPATCH_FAILED] = "the worker refused it",
	[KVR_E_WORKER_LOST] = "the worker went with it",
	[KVR_E_EXPIRED] = "it took too long",
	[KVR_E_SHUTDOWN] = "the router stops",
	[KVR_E_PREFILL_FAILED] = "the prefill leg failed",
	[KVR_E_SESSION_OPEN_FAILED] = "the session could not be opened",
	[KVR_E_SESSION_LIMIT] = "there is no room for another session",
	[KVR_E_UNKNOWN_SESSION] = "no such session",
	[KVR_E_INVALID_SESSION] = "the session's id, action or timeout is not legal",
	[KVR_E_SESSION_WORKER_GONE] = "the session's worker has left, or has begun a new life",
	[KVR_E_UNKNOWN_WORKER] = "the router does not know this worker: HELLO comes first",
	[KVR_E_STALE_EPOCH] = "this life of the worker is over",
	[KVR_E_WORKER_CONFIG] = "the worker does not fit the pool",
	[KVR_E_WORKER_LIMIT] = "no room for more workers or ranks",
	[KVR_E_WORKER_ALIVE] = "another address speaks for this worker",
};

struct kvr_reason kvr_reason_init(char *p, uint32_t cap)
{
	p[0] = '\0';
	return (struct kvr_reason){p, 0, cap};
}

static void put(struct kvr_reason *t, char c)
{
	if (t->n + 1 >= t->cap)
		return;
	t->p[t->n++] = c;
	t->p[t->n] = '\0';
}

void kvr_reason_say(struct kvr_reason *t, const char *text)
{
	while (*text != '\0')
		put(t, *text++);
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
		put(t, b[i] >= ' ' && b[i] < 0x7f ? (char)b[i] : '?');
}

const char *kvr_reason_words(unsigned int code)
{
	return code < KVR_E_MAX && words[code] != NULL ? words[code] : "for a reason unknown here";
}
