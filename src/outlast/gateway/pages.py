"""The Link header: where the next page is, for those who follow links rather than read bodies."""

from urllib.parse import parse_qsl, quote, urlencode

from outlast.gateway.exchange import Answer, Exchange


def with_link(exchange: Exchange, answer: Answer, **following: str) -> Answer:
    """Return ``answer`` with a link to the same address with ``following`` in its query; as it is when that is empty."""
    if not all(following.values()):
        return answer
    fields = dict(parse_qsl(exchange.query_string.decode("ascii"), keep_blank_values=True))
    query = urlencode({**fields, **following}, quote_via=quote)
    link = ("link", f'<{exchange.path}?{query}>; rel="next"')
    return Answer(answer.status, answer.body, answer.content_type, (*answer.headers, link))
