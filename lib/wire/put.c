/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_put.h"

#include <errno.h>
#include <string.h>

#define HDR ((uint32_t)sizeof(struct kvr_wire_hdr))

int kvr_put_message(void *buf, size_t cap, uint8_t kind, const struct kvr_wire_ids *ids,
		    struct kvr_slice fixed, struct kvr_slice tail)
{
	const uint64_t raw = (uint64_t)fixed.len + tail.len;
	const uint64_t body = (raw + 7) & ~UINT64_C(7);
	uint8_t *p = buf;

	if (body > KVR_WIRE_MAX_FRAME - HDR || body + HDR > cap)
		return -EMSGSIZE;
	kvr_hdr_put(p, kind, ids, (uint32_t)body, 0, (uint16_t)body);
	p += HDR;
	if (fixed.len > 0)
		memcpy(p, fixed.p, fixed.len);
	if (tail.len > 0)
		memcpy(p + fixed.len, tail.p, tail.len);
	memset(p + raw, 0, body - raw);
	return (int)(body + HDR);
}

int kvr_put_session_status(void *buf, size_t cap, uint8_t kind, const struct kvr_wire_ids *ids,
			   uint16_t code)
{
	const struct kvr_wire_session_status body = {.code = code};

	return kvr_put_message(buf, cap, kind, ids, (struct kvr_slice){&body, sizeof(body)},
			       (struct kvr_slice){NULL, 0});
}

int kvr_put_session(void *buf, size_t cap, uint8_t kind, const struct kvr_wire_ids *ids,
		    struct kvr_wire_session body, struct kvr_str id)
{
	if (id.len == 0 || id.len > KVR_HINT_MAX_SESSION)
		return -EMSGSIZE;
	body.id_len = (uint16_t)id.len;
	return kvr_put_message(buf, cap, kind, ids, (struct kvr_slice){&body, sizeof(body)},
			       (struct kvr_slice){id.p, id.len});
}

int kvr_put_rejected(void *buf, size_t cap, const struct kvr_wire_ids *ids, unsigned int code,
		     uint8_t kind, const struct kvr_fault *fault)
{
	struct kvr_wire_rejected body = {
		.code = (uint16_t)code, .retryable = kvr_code_retryable(code), .kind = kind};
	struct kvr_slice text = {NULL, 0};

	if (fault != NULL) {
		body.detail[0] = fault->seen;
		body.detail[1] = fault->allowed;
		if (fault->text != NULL)
			text = (struct kvr_slice){fault->text, (uint32_t)strnlen(fault->text, 255)};
	}
	body.text_len = (uint16_t)text.len;
	return kvr_put_message(buf, cap, KVR_REJECTED, ids, (struct kvr_slice){&body, sizeof(body)},
			       text);
}

int kvr_put_response(void *buf, size_t cap, const struct kvr_wire_ids *ids,
		     struct kvr_wire_response body, struct kvr_slice data)
{
	body.data_len = data.len;
	return kvr_put_message(buf, cap, KVR_RESPONSE, ids, (struct kvr_slice){&body, sizeof(body)},
			       data);
}

uint32_t kvr_response_append(struct kvr_wire_hdr *h, const void *hints, uint32_t len)
{
	struct kvr_wire_response *w = (struct kvr_wire_response *)(h + 1);
	uint8_t *end = (uint8_t *)w + h->frag_len;

	memcpy(end, hints, len);
	w->hints_len += len;
	h->frag_len = (uint16_t)(h->frag_len + len);
	h->msg_len += len;
	return HDR + h->frag_len;
}

int kvr_put_hello(void *buf, size_t cap, const struct kvr_wire_ids *ids, struct kvr_wire_hello body,
		  const struct kvr_hint_buf *hints)
{
	if (hints->err != 0)
		return hints->err;
	body.hints_len = hints->len;
	return kvr_put_message(buf, cap, KVR_HELLO, ids, (struct kvr_slice){&body, sizeof(body)},
			       (struct kvr_slice){hints->p, hints->len});
}

int kvr_put_connect(void *buf, size_t cap, const struct kvr_wire_ids *ids, uint16_t max_frame,
		    const struct kvr_hint_buf *hints)
{
	struct kvr_wire_connect body = {.max_frame = max_frame};
	struct kvr_slice tail = {NULL, 0};

	if (hints != NULL) {
		if (hints->err != 0)
			return hints->err;
		tail = (struct kvr_slice){hints->p, hints->len};
	}
	body.hints_len = tail.len;
	return kvr_put_message(buf, cap, KVR_CONNECT, ids, (struct kvr_slice){&body, sizeof(body)},
			       tail);
}

int kvr_put_heartbeat(void *buf, size_t cap, const struct kvr_wire_ids *ids,
		      const struct kvr_wire_rank_load rank[], uint32_t n, uint16_t flags,
		      uint16_t wish)
{
	const struct kvr_wire_heartbeat body = {.n_ranks = n, .flags = flags, .wish = wish};

	if (n > KVR_WIRE_MAX_FRAME / sizeof(*rank))
		return -EMSGSIZE;
	return kvr_put_message(buf, cap, KVR_HEARTBEAT, ids,
			       (struct kvr_slice){&body, sizeof(body)},
			       (struct kvr_slice){rank, n * (uint32_t)sizeof(*rank)});
}

int kvr_put_alive(void *buf, size_t cap, const struct kvr_wire_ids *ids, const uint64_t handle[],
		  uint32_t n)
{
	const struct kvr_wire_alive body = {.n = n};

	if (n == 0 || n > KVR_WIRE_ALIVE_MOST)
		return -EMSGSIZE;
	return kvr_put_message(buf, cap, KVR_ALIVE, ids, (struct kvr_slice){&body, sizeof(body)},
			       (struct kvr_slice){handle, n * (uint32_t)sizeof(*handle)});
}

int kvr_put_connected(void *buf, size_t cap, const struct kvr_wire_ids *ids,
		      struct kvr_wire_connected body, const struct kvr_wire_pool pool[],
		      const struct kvr_str name[], uint32_t n)
{
	const size_t room = cap < KVR_WIRE_MAX_FRAME ? cap : KVR_WIRE_MAX_FRAME;
	size_t len = HDR + sizeof(body);
	struct kvr_wire_pool *entry;
	uint8_t *p;
	uint32_t fit;

	for (fit = 0; fit < n; fit++) {
		const size_t more = sizeof(*pool) + ((name[fit].len + 7u) & ~7u);

		if (len > room || more > room - len)
			break;
		len += more;
	}
	if (len > room)
		return -EMSGSIZE;
	body.n_pools = fit;
	body.total_pools = n;
	memset(buf, 0, len);
	kvr_hdr_put(buf, KVR_CONNECTED, ids, (uint32_t)len - HDR, 0, (uint16_t)(len - HDR));
	memcpy((uint8_t *)buf + HDR, &body, sizeof(body));
	entry = (struct kvr_wire_pool *)((uint8_t *)buf + HDR + sizeof(body));
	p = (uint8_t *)(entry + fit);
	for (uint32_t i = 0; i < fit; i++) {
		entry[i] = pool[i];
		entry[i].name_len = (uint16_t)name[i].len;
		if (name[i].len > 0)
			memcpy(p, name[i].p, name[i].len);
		p += (name[i].len + 7u) & ~7u;
	}
	return (int)len;
}

int kvr_kv_put_begin(struct kvr_kv_put *k, void *buf, size_t cap, const struct kvr_wire_ids *ids,
		     const struct kvr_wire_kv_events *head)
{
	*k = (struct kvr_kv_put){.p = buf,
				 .cap = cap < KVR_WIRE_MAX_FRAME ? (uint32_t)cap
								 : KVR_WIRE_MAX_FRAME,
				 .len = HDR + (uint32_t)sizeof(*head)};
	if (k->len > k->cap)
		return -EMSGSIZE;
	kvr_hdr_put(buf, KVR_KV_EVENTS, ids, 0, 0, 0);
	memcpy(k->p + HDR, head, sizeof(*head));
	return 0;
}

uint32_t kvr_kv_put_room(const struct kvr_kv_put *k)
{
	const uint32_t left = k->cap - k->len;

	if (k->n_events == UINT16_MAX || left < sizeof(struct kvr_wire_kv_event))
		return 0;
	return (left - (uint32_t)sizeof(struct kvr_wire_kv_event)) / 8;
}

int kvr_kv_put_event(struct kvr_kv_put *k, uint8_t type, uint8_t tier, const uint64_t *parent,
		     const uint64_t hash[], uint32_t n)
{
	const struct kvr_wire_kv_event ev = {
		.type = type,
		.tier = tier,
		.flags = parent != NULL ? KVR_KV_EV_F_PARENT : 0,
		.n_blocks = n,
		.parent = parent != NULL ? *parent : 0,
	};

	if (k->n_events == UINT16_MAX || k->cap - k->len < sizeof(ev) ||
	    n > (k->cap - k->len - sizeof(ev)) / 8)
		return -EMSGSIZE;
	memcpy(k->p + k->len, &ev, sizeof(ev));
	if (n > 0)
		memcpy(k->p + k->len + sizeof(ev), hash, (size_t)n * 8);
	k->len += (uint32_t)sizeof(ev) + n * 8;
	k->n_events++;
	return 0;
}

int kvr_kv_put_events(struct kvr_kv_put *k, const void *events, uint32_t bytes, uint16_t n)
{
	if (n > UINT16_MAX - k->n_events || bytes > k->cap - k->len)
		return -EMSGSIZE;
	memcpy(k->p + k->len, events, bytes);
	k->len += bytes;
	k->n_events = (uint16_t)(k->n_events + n);
	return 0;
}

int kvr_kv_put_end(struct kvr_kv_put *k)
{
	struct kvr_wire_hdr *h = (struct kvr_wire_hdr *)k->p;
	struct kvr_wire_kv_events *m = (struct kvr_wire_kv_events *)(h + 1);

	m->n_events = k->n_events;
	h->msg_len = k->len - HDR;
	h->frag_len = (uint16_t)(k->len - HDR);
	return (int)k->len;
}
