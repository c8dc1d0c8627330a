/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_ENGINE_H
#define KVR_ENGINE_H

/**
 * @file
 * HTTP of inference engines: names shared by the headers of this library. The library turns a
 * routed request into a request of an engine (kvr_engine_request.h) and the engine's answer into
 * the one that the client asked for (kvr_engine_answer.h).
 *
 * No function does I/O or reads a clock. Memory comes from malloc(); each object is freed by its
 * own function, and each buffer that a function returns belongs to the caller, who frees it with
 * free(). One thread per object.
 */

#include <stddef.h>

enum kvr_engine_kind { KVR_ENGINE_VLLM, KVR_ENGINE_SGLANG };

/** API of a request, by its path. */
enum kvr_engine_api {
	KVR_ENGINE_OTHER,	/**< none of those below */
	KVR_ENGINE_COMPLETIONS, /**< /v1/completions */
	KVR_ENGINE_CHAT,	/**< /v1/chat/completions */
	KVR_ENGINE_RESPONSES,	/**< /v1/responses */
};

/** What happens to an answer on its way from the engine to the client. */
enum kvr_engine_form {
	KVR_ENGINE_RELAY, /**< it stays byte for byte */
	/** The stream loses the usage that was requested to count tokens, not by the client. */
	KVR_ENGINE_STRIP,
	/** The stream, which the client did not request, becomes one JSON answer. */
	KVR_ENGINE_FOLD,
};

/** Bytes in memory that this library allocates. */
struct kvr_engine_buffer {
	char *p;
	size_t len, cap;
};

#endif
