/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptions of failed transfers and answers. */
#include "app.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool app_http_refused(CURL *easy, CURLcode result)
{
	long number = 0;

	curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &number);
	return result == CURLE_COULDNT_CONNECT && number == ECONNREFUSED;
}

void app_curl_error(const struct app *app, CURL *easy, CURLcode result, char *why, size_t len)
{
	curl_off_t asked_us = 0; /* the time to connect is 0 on a reused connection */
	long number = 0;

	curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &number);
	curl_easy_getinfo(easy, CURLINFO_PRETRANSFER_TIME_T, &asked_us);
	switch (result) {
	case CURLE_OPERATION_TIMEDOUT:
		if (asked_us == 0)
			snprintf(why, len, "no connection within %u ms", app->o.connect_ms);
		else
			snprintf(why, len, "no answer in time");
		break;
	case CURLE_COULDNT_CONNECT:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
		snprintf(why, len, "%s",
			 number != 0 ? strerror((int)number) : curl_easy_strerror(result));
		break;
	case CURLE_PARTIAL_FILE:
		snprintf(why, len, "the answer was truncated");
		break;
	case CURLE_WRITE_ERROR:
		snprintf(why, len, "the answer exceeds %u MiB", APP_PAGE_MOST >> 20);
		break;
	case CURLE_GOT_NOTHING:
		snprintf(why, len, "connection closed without an answer");
		break;
	default:
		snprintf(why, len, "%s", curl_easy_strerror(result));
		break;
	}
}

const char *app_answer_error(int rc)
{
	switch (rc) {
	case -EBADMSG:
		return "the answer is not HTTP";
	case -EPROTO:
		return "the engine switched to another protocol";
	case -E2BIG:
		return "the head of the answer is too long";
	case -ECANCELED:
		return "the head of the answer cannot be forwarded";
	case -EOVERFLOW:
		return "the answer is too long";
	case -ENOMEM:
		return strerror(ENOMEM);
	default:
		return "the answer was truncated";
	}
}
