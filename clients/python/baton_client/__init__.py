"""Client of Baton's gRPC API: typed answers, streams, retries, deadlines, a tool loop."""
from baton_client.answers import Answer, Text, Thinking, ToolCall
from baton_client.asynchronous import AsyncClient
from baton_client.errors import BatonError
from baton_client.synchronous import Client
from baton_client.tools import Tool, tool

__all__ = ["Answer", "AsyncClient", "BatonError", "Client", "Text", "Thinking", "Tool", "ToolCall", "tool"]
