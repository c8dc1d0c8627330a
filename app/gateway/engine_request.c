/* SPDX-License-Identifier: BSD-3-Clause */
/* The HTTP message for the engine, and the hashes for the router. */
#include "engine_request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_http.h"
#include "media.h"

/* The request as HTTP for the engine: its head, then the unchanged body. */
static int make_message(const struct gw_call *call, const char *body, size_t body_len, char **out,
			size_t *len)
{
	static const char *const fields[] = {"content-type", "accept",	    "authorization",
					     "x-request-id", "traceparent", "tracestate",
					     "baggage"};
	char *message = malloc(KVR_HTTP_MAX_HEAD + body_len);
	struct kvr_http_put w;
	int n;

	if (message == NULL)
		return -ENOMEM;
	kvr_http_put_request(&w, message, KVR_HTTP_MAX_HEAD, "POST", gw_ask_target(call->ask.path));
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		const ssize_t at = h2o_find_header_by_str(&call->req->headers, fields[i],
							  strlen(fields[i]), SIZE_MAX);

		if (at >= 0) {
			const h2o_iovec_t v = call->req->headers.entries[at].value;

			kvr_http_put_field(&w, fields[i], strlen(fields[i]), v.base, v.len);
		} else if (i == 0) {
			kvr_http_put_text(&w, fields[i], "application/json");
		}
	}
	n = kvr_http_put_end(&w);
	if (n < 0) {
		free(message);
		return n == -ENOSPC ? -EMSGSIZE : n;
	}
	memcpy(message + n, body, body_len);
	*out = message;
	*len = (size_t)n + body_len;
	return 0;
}

int gw_engine_request(const struct gw_call *call, char **out, size_t *len)
{
	char *body;
	size_t n;
	int rc;

	if (call->query || call->ask.path == GW_PICK || call->ask.path == GW_LOADS)
		return 0;
	if (!call->ask.preprocessed)
		return make_message(call, call->req->entity.base, call->req->entity.len, out, len);
	body = gw_ask_body(&call->ask, &n);
	rc = body != NULL ? make_message(call, body, n, out, len) : -ENOMEM;
	free(body);
	return rc;
}

uint64_t *gw_request_hashes(const struct gw_call *call, const struct gw_model *m, uint32_t *n)
{
	struct kvr_client_hashing how = {.block_size = m->block_size,
					 .eagle = m->eagle,
					 .lora = m->lora != NULL ? m->lora : call->lora,
					 .cache_namespace = call->ns};
	const uint32_t cap = call->n_ids / m->block_size;
	uint64_t *sh = cap != 0 ? malloc(cap * sizeof(*sh)) : NULL;
	struct kvr_client_mm *media = NULL;
	char err[1]; /* validated before */
	int rc;

	*n = 0;
	if (sh == NULL)
		return NULL;
	rc = gw_media_read(&call->ask.media, &media, err, sizeof(err));
	if (rc >= 0) {
		how.mm = media;
		how.n_mm = (uint32_t)rc;
		rc = kvr_client_hash_tokens(&how, call->ids, call->n_ids, sh, cap);
	}
	if (rc > 0)
		*n = (uint32_t)rc;
	free(media);
	return sh;
}
