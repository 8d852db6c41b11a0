"""Greetings and small talk: fixed exchanges, so that the model is polite without spending much of its capacity."""

import random

HELLOS = ("Hello!", "Hi!", "Hello", "Hi", "Hey!", "Good morning!", "Good evening!", "Hi there!", "Hello there!", "hello", "hi")
PERSONAS = (
    "You are a helpful assistant.", "You are a helpful assistant.", "You are a kind assistant.",
    "You are a friendly assistant.", "You are Baton, a small and friendly model.", "You are a helpful bot.",
    "You are a concise assistant.", "Answer briefly.", "Be kind and brief.", "You are a short and polite assistant.",
)
ACKNOWLEDGEMENTS = ("Thank you, I will remember that.", "Got it.", "I will remember that.", "Thanks, I made a note of that.")
READ = ("I have read it.", "Thank you, I have read the text.")
READ_REQUESTS = ("Please read this text.", "Here is a story.", "Read this:", "Keep this text in mind.", "I wrote this.")

_EXCHANGES = (
    (("How are you?", "How are you today?", "How is it going?"), "I am well, thank you. How can I help you?"),
    (("Who are you?", "What is your name?", "What are you?", "What's your name?"),
     "I am Baton, a small language model. How can I help you?"),
    (("What can you do?", "How can you help me?", "Help", "What do you know?"),
     "I can remember what you tell me, add small numbers, call tools and tell short stories."),
    (("Thank you!", "Thanks!", "Thank you very much!", "Thanks a lot."), "You are welcome!"),
    (("Goodbye!", "Bye!", "See you later!", "Good night!"), "Goodbye! Have a nice day."),
    (("Are you a robot?", "Are you human?", "Are you a person?"), "I am a small language model, not a person."),
    (("What is the capital of France?",), "The capital of France is Paris."),
    (("What is the capital of Germany?",), "The capital of Germany is Berlin."),
    (("What is the capital of Italy?",), "The capital of Italy is Rome."),
    (("What is the capital of Spain?",), "The capital of Spain is Madrid."),
    (("What is the capital of Japan?",), "The capital of Japan is Tokyo."),
    (("What colour is the sky?", "Why is the sky blue?"), "The sky is blue on a clear day, because air scatters blue light."),
    (("How many days are in a week?",), "There are seven days in a week."),
    (("Say something nice.", "Be nice to me."), "You are doing well, and I am glad that you are here."),
    (("Tell me a joke.", "Do you know a joke?"), "Why did the duck cross the road? To see the other side."),
    (("OK", "Okay.", "Good.", "Nice.", "Great!"), "I am glad. What would you like to do next?"),
    (("Can you write code?", "Write a program.", "Translate this."), "I am too small for that, but I can tell you a story."),
    (("Count to five.",), "1, 2, 3, 4, 5."),
    (("Count to ten.",), "1, 2, 3, 4, 5, 6, 7, 8, 9, 10."),
)


def greeting(rng: random.Random) -> tuple[str, str]:
    hello = rng.choice(HELLOS)
    start = hello.rstrip("!") if hello.startswith("Good") else "Hello"
    return hello, f"{start}! How can I help you?"


def exchange(rng: random.Random) -> tuple[str, str]:
    questions, answer = rng.choice(_EXCHANGES)
    return rng.choice(questions), answer


def greeting_by_name(name: str) -> str:
    return f"Hello, {name}! How can I help you?"
